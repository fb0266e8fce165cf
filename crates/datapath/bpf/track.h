/* SPDX-License-Identifier: GPL-2.0 */
/* The way of every packet past the connections of its network. */
#pragma once

#include "connection.h"
#include "fragments.h"

static __always_inline verdict track(struct __sk_buff *skb, struct flow *flow)
{
	__u32 place = flow->table;
	void *table = bpf_map_lookup_elem(&connections, &place);
	__u64 now = bpf_ktime_get_coarse_ns();
	verdict judged = FINE;

	if (!table)
		return DROP_CONNECTIONS_EXHAUSTED;
	if (flow->transport.part == PART_LATER)
		return judge_later(table, flow, now);
	if (is_icmp(flow->transport.protocol)) {
		judged = judge_icmp(skb, table, flow, now);
		if (judged != FINE || is_error(&flow->transport))
			return judged;
	}
	judged = follow(skb, table, flow, now);
	if (judged == FINE && flow->transport.part == PART_FIRST)
		return remember_first(table, flow, now);
	return judged;
}
