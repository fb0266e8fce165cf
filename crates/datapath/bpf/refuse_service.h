/* SPDX-License-Identifier: GPL-2.0 */
/* A service without a backend refuses at once: silence would make its client wait. */
#pragma once

#include "drops.h"
#include "flow.h"

/* The client's packet, as it came, is answered with a refusal: TCP's reset, ICMP's "port
 * unreachable". Counted as dropped either way. */
static __noinline int refuse_service(struct __sk_buff *skb, struct interface *own, struct flow *flow)
{
	return drop(skb, flow->network == own->network ? own->network : NO_NETWORK,
		    DROP_NO_BACKEND);
}
