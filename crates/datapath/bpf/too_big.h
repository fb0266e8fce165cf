/* SPDX-License-Identifier: GPL-2.0 */
/* A packet that does not fit through the tunnel comes back to its sender as "too big", from the
 * gateway, with the beginning of the packet. Dropping it alone would leave a connection hanging. */
#pragma once

#include "constants.h"
#include "drops.h"
#include "icmp.h"

/* What is sent back of the packet: its header and, since the kernel refuses to cut a packet before
 * the end of an unfinished checksum, a good part of the next. */
#define QUOTE_IPV4 48
#define QUOTE_IPV6 88

struct too_big_ipv4 {
	struct iphdr ip;
	struct icmp_header icmp;
	__u8 quote[QUOTE_IPV4];
};

struct too_big_ipv6 {
	struct ipv6hdr ip;
	struct icmp_header icmp;
	__u8 quote[QUOTE_IPV6];
};

#define ROOM_IPV4 (sizeof(struct too_big_ipv4) - QUOTE_IPV4)
#define ROOM_IPV6 (sizeof(struct too_big_ipv6) - QUOTE_IPV6)

/* Cuts the packet to its quote and makes room for headers between it and the Ethernet header. */
static __always_inline bool make_room(struct __sk_buff *skb, __u32 quote, __u32 room)
{
	return !bpf_skb_change_tail(skb, ETH_HLEN + quote, 0) &&
	       !bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC, 0);
}

static __always_inline int send_to_pod(struct __sk_buff *skb, const struct interface *own,
				       __be16 protocol, const void *packet, __u32 size)
{
	struct ethhdr eth;

	address_to_pod(&eth, own, protocol);
	if (bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN, packet, size, 0))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

static __noinline int refuse_too_big_ipv4(struct __sk_buff *skb, struct interface *own)
{
	struct too_big_ipv4 answer = {
		.ip = {
			.version = 4,
			.ihl = sizeof(answer.ip) / 4,
			.tot_len = bpf_htons(sizeof(answer)),
			.ttl = GATEWAY_HOPS,
			.protocol = ICMP_PROTOCOL,
			.saddr = gateway_ipv4(),
		},
		.icmp = {
			.type = ICMP_UNREACHABLE,
			.code = ICMP_FRAGMENTATION_NEEDED,
			.rest = bpf_htonl(POD_MTU),
		},
	};

	if (bpf_skb_load_bytes(skb, ETH_HLEN, answer.quote, QUOTE_IPV4))
		return TC_ACT_SHOT;
	answer.ip.daddr = ((struct iphdr *)answer.quote)->saddr;
	answer.ip.check = fold(add_up(&answer.ip, sizeof(answer.ip), 0));
	answer.icmp.checksum = fold(add_up(&answer.icmp, sizeof(answer) - sizeof(answer.ip), 0));
	if (!make_room(skb, QUOTE_IPV4, ROOM_IPV4))
		return TC_ACT_SHOT;
	return send_to_pod(skb, own, bpf_htons(ETH_P_IP), &answer, sizeof(answer));
}

static __noinline int refuse_too_big_ipv6(struct __sk_buff *skb, struct interface *own)
{
	struct pseudo_header pseudo = { .source = gateway_ipv6(), .next_header = bpf_htonl(IPV6_ICMP) };
	struct too_big_ipv6 answer = {
		.ip = {
			.version = 6,
			.payload_len = bpf_htons(sizeof(answer) - sizeof(answer.ip)),
			.nexthdr = IPV6_ICMP,
			.hop_limit = GATEWAY_HOPS,
		},
		.icmp = { .type = ICMPV6_TOO_BIG, .rest = bpf_htonl(POD_MTU) },
	};

	if (bpf_skb_load_bytes(skb, ETH_HLEN, answer.quote, QUOTE_IPV6))
		return TC_ACT_SHOT;
	pseudo.destination = ipv6_address(&((struct ipv6hdr *)answer.quote)->saddr);
	pseudo.length = bpf_htonl(sizeof(answer) - sizeof(answer.ip));
	__builtin_memcpy(&answer.ip.saddr, &pseudo.source, sizeof(answer.ip.saddr));
	__builtin_memcpy(&answer.ip.daddr, &pseudo.destination, sizeof(answer.ip.daddr));
	answer.icmp.checksum = fold(add_up(&answer.icmp, sizeof(answer) - sizeof(answer.ip),
					   pseudo_sum(&pseudo)));
	if (!make_room(skb, QUOTE_IPV6, ROOM_IPV6))
		return TC_ACT_SHOT;
	return send_to_pod(skb, own, bpf_htons(ETH_P_IPV6), &answer, sizeof(answer));
}
