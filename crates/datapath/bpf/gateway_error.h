/* SPDX-License-Identifier: GPL-2.0 */
/* A packet that goes no further comes back to its pod as an error of ICMP or ICMPv6 from the gateway,
 * with the beginning of the packet. Silence would leave a connection hanging. */
#pragma once

#include "drops.h"
#include "tell.h"

/* Tells the pod behind `own`, from its gateway. */
static __always_inline int tell_pod_ipv4(struct __sk_buff *skb, const struct interface *own,
					 struct icmp_header said, const __u32 quote)
{
	struct ethhdr eth;

	address_to_pod(&eth, own, bpf_htons(ETH_P_IP));
	return tell_ipv4(skb, &eth, gateway_ipv4(), said, quote);
}

static __always_inline int tell_pod_ipv6(struct __sk_buff *skb, const struct interface *own,
					 struct icmp_header said, const __u32 quote)
{
	const struct address gateway = gateway_ipv6();
	struct ethhdr eth;

	address_to_pod(&eth, own, bpf_htons(ETH_P_IPV6));
	return tell_ipv6(skb, &eth, &gateway, said, quote);
}
