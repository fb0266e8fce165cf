/* SPDX-License-Identifier: GPL-2.0 */
/* A packet that goes back to its sender as an error of ICMP or ICMPv6, with its own beginning. */
#pragma once

#include <linux/pkt_cls.h>

#include "icmp.h"

/* The most that is quoted. */
#define QUOTE_IPV4 48
#define QUOTE_IPV6 88

struct error_ipv4 {
	struct iphdr ip;
	struct icmp_header icmp;
	__u8 quote[QUOTE_IPV4];
};

struct error_ipv6 {
	struct ipv6hdr ip;
	struct icmp_header icmp;
	__u8 quote[QUOTE_IPV6];
};

/* Cuts the packet to its quote and reads it. The kernel refuses to cut before the end of an unfinished
 * checksum. */
static __always_inline bool cut_to_quote(struct __sk_buff *skb, void *quote, __u32 size)
{
	return !bpf_skb_change_tail(skb, ETH_HLEN + size, 0) &&
	       !bpf_skb_load_bytes(skb, ETH_HLEN, quote, size);
}

/* Makes room for `more` bytes of headers, and sends the packet back as `size` bytes behind `eth`. */
static __always_inline int send_back(struct __sk_buff *skb, const struct ethhdr *eth,
				     const void *packet, __u32 size, __u32 more)
{
	if (bpf_skb_adjust_room(skb, more, BPF_ADJ_ROOM_MAC, 0) ||
	    bpf_skb_store_bytes(skb, 0, eth, sizeof(*eth), 0) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN, packet, size, 0))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

/* Tells the sender, from an address, in the frame `eth`. `said` has no checksum yet; `quote` is how
 * much of the packet goes back, a constant. */
static __always_inline int tell_ipv4(struct __sk_buff *skb, const struct ethhdr *eth, __be32 from,
				     struct icmp_header said, const __u32 quote)
{
	const __u32 message = sizeof(said) + quote;
	struct error_ipv4 error = {
		.ip = {
			.version = 4,
			.ihl = sizeof(error.ip) / 4,
			.tot_len = bpf_htons(sizeof(error.ip) + message),
			.ttl = GATEWAY_HOPS,
			.protocol = ICMP_PROTOCOL,
			.saddr = from,
		},
		.icmp = said,
	};

	if (!cut_to_quote(skb, error.quote, quote))
		return TC_ACT_SHOT;
	error.ip.daddr = ((struct iphdr *)error.quote)->saddr;
	error.ip.check = fold(add_up(&error.ip, sizeof(error.ip), 0));
	error.icmp.checksum = fold(add_up(&error.icmp, message, 0));
	return send_back(skb, eth, &error, sizeof(error.ip) + message,
			 sizeof(error.ip) + sizeof(said));
}

/* The same for IPv6. */
static __always_inline int tell_ipv6(struct __sk_buff *skb, const struct ethhdr *eth,
				     const struct address *from, struct icmp_header said,
				     const __u32 quote)
{
	const __u32 message = sizeof(said) + quote;
	__u32 sum = bpf_htons(message) + bpf_htons(IPV6_ICMP);
	struct error_ipv6 error = {
		.ip = {
			.version = 6,
			.payload_len = bpf_htons(message),
			.nexthdr = IPV6_ICMP,
			.hop_limit = GATEWAY_HOPS,
		},
		.icmp = said,
	};

	if (!cut_to_quote(skb, error.quote, quote))
		return TC_ACT_SHOT;
	__builtin_memcpy(&error.ip.saddr, from, sizeof(error.ip.saddr));
	error.ip.daddr = ((struct ipv6hdr *)error.quote)->saddr;
	/* Beside the message, the checksum covers both addresses, which lie side by side. */
	sum = add_up(&error.ip.saddr, 2 * sizeof(error.ip.saddr), sum);
	error.icmp.checksum = fold(add_up(&error.icmp, message, sum));
	return send_back(skb, eth, &error, sizeof(error.ip) + message,
			 sizeof(error.ip) + sizeof(said));
}
