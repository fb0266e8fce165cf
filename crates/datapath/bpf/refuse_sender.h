/* SPDX-License-Identifier: GPL-2.0 */
/* A refusal in a frame to whoever sent the frame at hand, by the address that it spoke to. */
#pragma once

#include "refuse.h"

/* The frame of an answer to the sender of the frame at hand. Says whether it could be read. */
static __always_inline bool turn_frame(struct __sk_buff *skb, struct ethhdr *eth)
{
	struct ethhdr was;

	if (bpf_skb_load_bytes(skb, 0, &was, sizeof(was)))
		return false;
	copy_mac(eth->h_dest, was.h_source);
	copy_mac(eth->h_source, was.h_dest);
	eth->h_proto = was.h_proto;
	return true;
}

static __noinline int reset_sender(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr eth;

	return turn_frame(skb, &eth) ? send_reset(skb, &eth, flow) : TC_ACT_SHOT;
}

static __noinline int tell_sender_ipv4(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr eth;

	if (!turn_frame(skb, &eth))
		return TC_ACT_SHOT;
	return tell_ipv4(skb, &eth, ipv4_of(&flow->destination), unreachable_ipv4(flow),
			 REFUSED_IPV4);
}

static __noinline int tell_sender_ipv6(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr eth;

	if (!turn_frame(skb, &eth))
		return TC_ACT_SHOT;
	return tell_ipv6(skb, &eth, &flow->destination, unreachable_ipv6(flow), REFUSED_IPV6);
}

/* `flow` is the packet as it came. One with options or in parts gets no answer. */
static __always_inline int refuse_sender(struct __sk_buff *skb, struct flow *flow)
{
	bool ipv6 = !is_mapped(&flow->source);

	if (flow->transport.at != (ipv6 ? IPV6_FRAME : IPV4_FRAME) ||
	    flow->transport.part != PART_WHOLE)
		return TC_ACT_SHOT;
	if (flow->transport.protocol == TCP_PROTOCOL)
		return reset_sender(skb, flow);
	return ipv6 ? tell_sender_ipv6(skb, flow) : tell_sender_ipv4(skb, flow);
}
