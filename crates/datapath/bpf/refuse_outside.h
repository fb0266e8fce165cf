/* SPDX-License-Identifier: GPL-2.0 */
/* What came to an address that is there for a network, and goes to nobody.
 *
 * The rules: none of it reaches the node's own stack, where programs that listen at every address would
 * answer. Where a service has nobody, its client is refused at once, by the address that it spoke to,
 * in a frame to whoever sent its own; everything else is silence under a name. */
#pragma once

#include "drops.h"
#include "loop.h"
#include "refuse_sender.h"

/* `flow` is the packet as it came, to a service of `network`. */
static __noinline int refuse_stranger(struct __sk_buff *skb, struct flow *flow, __u32 network)
{
	drop(skb, network, DROP_NO_BACKEND);
	return refuse_sender(skb, flow);
}

/* The same for one that came from this very node: the refusal comes in there, too. */
static __noinline int refuse_looped(struct __sk_buff *skb, struct flow *flow, __u32 network)
{
	int action = refuse_stranger(skb, flow, network);

	return action == TC_ACT_REDIRECT ? loop(skb) : action;
}
