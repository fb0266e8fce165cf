/* SPDX-License-Identifier: GPL-2.0 */
/* What came to an address that is there for a network, and goes to nobody.
 *
 * The rules: none of it reaches the node's own stack, where programs that listen at every address would
 * answer. Where a service has nobody, its client is refused at once, by the address that it spoke to,
 * in a frame to whoever sent its own; everything else is silence under a name. */
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

static __noinline int reset_stranger(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr eth;

	return turn_frame(skb, &eth) ? send_reset(skb, &eth, flow) : TC_ACT_SHOT;
}

static __noinline int tell_stranger_ipv4(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr eth;

	if (!turn_frame(skb, &eth))
		return TC_ACT_SHOT;
	return tell_ipv4(skb, &eth, ipv4_of(&flow->destination), unreachable_ipv4(flow),
			 REFUSED_IPV4);
}

static __noinline int tell_stranger_ipv6(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr eth;

	if (!turn_frame(skb, &eth))
		return TC_ACT_SHOT;
	return tell_ipv6(skb, &eth, &flow->destination, unreachable_ipv6(flow), REFUSED_IPV6);
}

/* `flow` is the packet as it came, to a service of `network`. */
static __noinline int refuse_stranger(struct __sk_buff *skb, struct flow *flow, __u32 network)
{
	bool ipv6 = !is_mapped(&flow->source);

	drop(skb, network, DROP_NO_BACKEND);
	if (flow->transport.at != (ipv6 ? IPV6_FRAME : IPV4_FRAME) ||
	    flow->transport.part != PART_WHOLE)
		return TC_ACT_SHOT;
	if (flow->transport.protocol == TCP_PROTOCOL)
		return reset_stranger(skb, flow);
	return ipv6 ? tell_stranger_ipv6(skb, flow) : tell_stranger_ipv4(skb, flow);
}
