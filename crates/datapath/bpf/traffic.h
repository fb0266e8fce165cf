/* SPDX-License-Identifier: GPL-2.0 */
/* What each pod of this node sends and receives, counted where it is sent and delivered. Each CPU
 * counts for itself. */
#pragma once

#include "maps.h"

static __always_inline struct traffic *traffic_of(__u32 ifindex)
{
	struct interface_key key = { .ifindex = ifindex };

	return bpf_map_lookup_elem(&traffic, &key);
}

static __always_inline void count_sent(struct __sk_buff *skb)
{
	struct traffic *own = traffic_of(skb->ifindex);

	if (!own)
		return;
	own->sent_packets += 1;
	own->sent_bytes += skb->len;
}

static __always_inline void count_received(struct __sk_buff *skb, __u32 ifindex)
{
	struct traffic *theirs = traffic_of(ifindex);

	if (!theirs)
		return;
	theirs->received_packets += 1;
	theirs->received_bytes += skb->len;
}

/* What comes through the tunnel is of no pod of this node. */
static __always_inline void count_dropped(struct __sk_buff *skb)
{
	struct traffic *own = traffic_of(skb->ifindex);

	if (!own)
		return;
	own->dropped_packets += 1;
	own->dropped_bytes += skb->len;
}
