/* SPDX-License-Identifier: GPL-2.0 */
/* A packet that does not fit through the tunnel comes back to its sender as "too big", from the
 * gateway, with the beginning of the packet. */
#pragma once

#include "constants.h"
#include "gateway_error.h"

static __noinline int refuse_too_big_ipv4(struct __sk_buff *skb, struct interface *own)
{
	const struct icmp_header said = {
		.type = ICMP_UNREACHABLE,
		.code = ICMP_FRAGMENTATION_NEEDED,
		.rest = bpf_htonl(POD_MTU),
	};

	return tell_pod_ipv4(skb, own, said, QUOTE_IPV4);
}

static __noinline int refuse_too_big_ipv6(struct __sk_buff *skb, struct interface *own)
{
	const struct icmp_header said = { .type = ICMPV6_TOO_BIG, .rest = bpf_htonl(POD_MTU) };

	return tell_pod_ipv6(skb, own, said, QUOTE_IPV6);
}
