/* SPDX-License-Identifier: GPL-2.0 */
/* Neighbour discovery, the gateway's voice in IPv6: as in arp.h, a pod's every question is answered
 * with the gateway's MAC, and no other message of it goes anywhere. */
#pragma once

#include "drops.h"
#include "icmp.h"
#include "source.h"

#define ND_OPTION_SOURCE_MAC 1
#define ND_OPTION_TARGET_MAC 2
#define ND_FROM_ROUTER_SOLICITED_OVERRIDE 0xe0000000

struct nd_option {
	__u8 type;
	__u8 length; /* in units of eight bytes */
	__u8 mac[6];
};

/* A solicitation or advertisement; solicitations may lack the option. */
struct nd_message {
	struct icmp_header icmp;
	struct address target;
	struct nd_option option;
};

#define ND_QUESTION (sizeof(struct nd_message) - sizeof(struct nd_option))
#define ND_FRAME (IPV6_FRAME + sizeof(struct nd_message))

static __always_inline bool is_nd(struct __sk_buff *skb, const struct ipv6hdr *ip)
{
	__u8 type;

	if (ip->nexthdr != IPV6_ICMP || bpf_skb_load_bytes(skb, IPV6_FRAME, &type, 1))
		return false;
	return type >= ICMPV6_ROUTER_SOLICITATION && type <= ICMPV6_REDIRECT;
}

/* An address that nobody has yet is asked for from no address: a search for duplicates, which
 * finds none. */
static __always_inline verdict check_nd(const struct interface *own, const struct address *sender,
					const struct nd_message *question)
{
	const struct address nobody = {};

	if (same_address(sender, &nobody))
		return DROP_UNWANTED_ND;
	if (!has_source(own, sender))
		return DROP_SPOOFED_ND;
	if (question->option.type == ND_OPTION_SOURCE_MAC &&
	    !same_mac(question->option.mac, own->mac))
		return DROP_SPOOFED_ND;
	return has_source(own, &question->target) ? DROP_UNWANTED_ND : FINE;
}

static __always_inline void write_advertisement(struct nd_message *message,
						const struct address *asker)
{
	struct pseudo_header pseudo = {
		.source = message->target,
		.destination = *asker,
		.length = bpf_htonl(sizeof(*message)),
		.next_header = bpf_htonl(IPV6_ICMP),
	};

	message->icmp = (struct icmp_header){
		.type = ICMPV6_ADVERTISEMENT,
		.rest = bpf_htonl(ND_FROM_ROUTER_SOLICITED_OVERRIDE),
	};
	message->option.type = ND_OPTION_TARGET_MAC;
	message->option.length = 1;
	copy_gateway_mac(message->option.mac);
	message->icmp.checksum = fold(add_up(message, sizeof(*message), pseudo_sum(&pseudo)));
}

static __always_inline int send_advertisement(struct __sk_buff *skb, const struct interface *own,
					      const struct nd_message *message,
					      const struct address *asker)
{
	struct ethhdr *eth;
	struct ipv6hdr *ip;

	if (bpf_skb_change_tail(skb, ND_FRAME, 0))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	eth = frame_start(skb, ND_FRAME);
	if (!eth)
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	ip = ipv6_header(eth);
	ip->payload_len = bpf_htons(sizeof(*message));
	__builtin_memcpy(&ip->saddr, &message->target, sizeof(ip->saddr));
	__builtin_memcpy(&ip->daddr, asker, sizeof(ip->daddr));
	__builtin_memcpy(ip + 1, message, sizeof(*message));
	address_to_pod(eth, own, bpf_htons(ETH_P_IPV6));
	return bpf_redirect(skb->ifindex, 0);
}

/* Not inlined, so that its message does not lie on the stack of every packet's way. */
static __noinline int answer_nd(struct __sk_buff *skb, struct interface *own,
				struct address *asker)
{
	struct nd_message message = {};
	verdict judged;

	if (bpf_skb_load_bytes(skb, IPV6_FRAME, &message, sizeof(message.icmp)))
		return drop(skb, own->network, DROP_MALFORMED);
	if (message.icmp.type != ICMPV6_SOLICITATION || message.icmp.code != 0)
		return drop(skb, own->network, DROP_UNWANTED_ND);
	if (bpf_skb_load_bytes(skb, IPV6_FRAME, &message, ND_QUESTION))
		return drop(skb, own->network, DROP_MALFORMED);
	/* Absent in some questions, and then all zero. */
	bpf_skb_load_bytes(skb, IPV6_FRAME + ND_QUESTION, &message.option, sizeof(message.option));
	judged = check_nd(own, asker, &message);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	write_advertisement(&message, asker);
	return send_advertisement(skb, own, &message, asker);
}
