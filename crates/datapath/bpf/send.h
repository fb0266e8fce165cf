/* SPDX-License-Identifier: GPL-2.0 */
/* A pod's packet that may go goes: to a pod of this node, or through the tunnel to another, and is
 * counted. */
#pragma once

#include "deliver.h"
#include "drops.h"
#include "tunnel.h"

static __always_inline bool fits(struct __sk_buff *skb, const struct place *to)
{
	return to->ifindex || fits_tunnel(skb);
}

static __always_inline int send(struct __sk_buff *skb, const struct interface *own,
				const struct place *to, const struct address *node)
{
	struct ethhdr *eth = frame_start(skb, sizeof(*eth));

	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	count_sent(skb, own->slot);
	return to->ifindex ? deliver_here(skb, eth, to) :
			     deliver_there(skb, eth, own->network, to, node);
}

/* Apart, for its tunnel key does not fit on the longer paths' stack. */
static __noinline int send_on(struct __sk_buff *skb, struct interface *own, const struct place *to,
			      const struct address *node)
{
	return send(skb, own, to, node);
}
