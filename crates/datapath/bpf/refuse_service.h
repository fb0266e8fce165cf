/* SPDX-License-Identifier: GPL-2.0 */
/* A service that nobody stands behind refuses at once: silence would make its client wait.
 *
 * The client's packet is turned into the answer: TCP's reset comes from the service itself, for
 * everything else the gateway says "unreachable". Counted as dropped either way. A packet with
 * options or extension headers gets no answer. */
#pragma once

#include "gateway_error.h"
#include "refuse.h"

static __noinline int reset_client(struct __sk_buff *skb, struct interface *own, struct flow *flow)
{
	struct ethhdr eth;

	address_to_pod(&eth, own,
		       is_mapped(&flow->source) ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6));
	return send_reset(skb, &eth, flow);
}

static __noinline int tell_unreachable_ipv4(struct __sk_buff *skb, struct interface *own,
					    struct flow *flow)
{
	return tell_pod_ipv4(skb, own, unreachable_ipv4(flow), REFUSED_IPV4);
}

static __noinline int tell_unreachable_ipv6(struct __sk_buff *skb, struct interface *own,
					    struct flow *flow)
{
	return tell_pod_ipv6(skb, own, unreachable_ipv6(flow), REFUSED_IPV6);
}

static __noinline int refuse_service(struct __sk_buff *skb, struct interface *own, struct flow *flow)
{
	bool ipv6 = !is_mapped(&flow->source);

	drop(skb, own->network, DROP_NO_BACKEND);
	if (flow->transport.at != (ipv6 ? IPV6_FRAME : IPV4_FRAME))
		return TC_ACT_SHOT;
	if (flow->transport.protocol == TCP_PROTOCOL)
		return reset_client(skb, own, flow);
	return ipv6 ? tell_unreachable_ipv6(skb, own, flow) : tell_unreachable_ipv4(skb, own, flow);
}
