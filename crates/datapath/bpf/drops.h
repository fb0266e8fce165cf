/* SPDX-License-Identifier: GPL-2.0 */
/* The only way out for a packet that is not delivered: counted, under a name. */
#pragma once

#include <linux/pkt_cls.h>

#include "events.h"
#include "traffic.h"

static __always_inline struct drop_counter *new_drop_counter(struct drop_key *key)
{
	struct drop_counter zero = {};

	/* Another CPU may have been first, which is as good. */
	bpf_map_update_elem(&drops, key, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&drops, key);
}

/* Not static, so that the kernel checks it once and not for each of its callers. */
__noinline int drop(struct __sk_buff *skb, __u32 network, __u32 reason)
{
	struct drop_key key = { .network = network, .reason = reason };
	struct drop_counter *counter = bpf_map_lookup_elem(&drops, &key);

	if (!counter)
		counter = new_drop_counter(&key);
	if (!counter) {
		/* The map is full. The agent made the counters of no network beforehand. */
		key.network = NO_NETWORK;
		counter = bpf_map_lookup_elem(&drops, &key);
	}
	if (counter) {
		counter->packets += 1;
		counter->bytes += skb->len;
	}
	count_dropped(skb);
	if (is_watched())
		tell_drop(skb, network, reason);
	return TC_ACT_SHOT;
}
