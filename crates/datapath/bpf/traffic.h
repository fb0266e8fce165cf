/* SPDX-License-Identifier: GPL-2.0 */
/* What each pod of this node sends and receives, counted where it is sent and delivered. Each CPU
 * counts for itself. */
#pragma once

#include "maps.h"

static __always_inline struct traffic *traffic_in(__u32 slot)
{
	return bpf_map_lookup_elem(&traffic, &slot);
}

static __always_inline void count_sent(struct __sk_buff *skb, __u32 slot)
{
	struct traffic *own = traffic_in(slot);

	if (!own)
		return;
	own->sent_packets += 1;
	own->sent_bytes += skb->len;
}

static __always_inline void count_received(struct __sk_buff *skb, __u32 slot)
{
	struct traffic *theirs = traffic_in(slot);

	if (!theirs)
		return;
	theirs->received_packets += 1;
	theirs->received_bytes += skb->len;
}

/* What comes through the tunnel is of no pod of this node. */
static __always_inline void count_dropped(struct __sk_buff *skb)
{
	struct interface_key key = { .ifindex = skb->ifindex };
	struct interface *own = bpf_map_lookup_elem(&interfaces, &key);
	struct traffic *counters = own ? traffic_in(own->slot) : NULL;

	if (!counters)
		return;
	counters->dropped_packets += 1;
	counters->dropped_bytes += skb->len;
}
