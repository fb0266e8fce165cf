/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs of plain pods do not let pass, counted under the names that tenants' drops have, in a
 * map that is theirs alone. A packet that its sender is told of counts, too. */
#pragma once

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "plain_abi.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PLAIN_DROP_REASONS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct drop_counter);
} plain_drops SEC(".maps");

/* Not static, so that the kernel checks it once and not for each of its callers. */
__noinline int drop_plain(struct __sk_buff *skb, __u32 reason)
{
	struct drop_counter *counter = bpf_map_lookup_elem(&plain_drops, &reason);

	if (counter) {
		counter->packets += 1;
		counter->bytes += skb->len;
	}
	return TC_ACT_SHOT;
}
