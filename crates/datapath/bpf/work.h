/* SPDX-License-Identifier: GPL-2.0 */
/* Room for the slow path, on each CPU: the stack of all functions together is 512 bytes, and
 * functions that find everything here are checked by the kernel once, whoever calls them. No packet
 * is in the middle of it when the next one of the same CPU begins. */
#pragma once

#include "policy.h"
#include "ring.h"
#include "service.h"

/* One end of a packet's way. */
struct end {
	__u64 since; /* as of an endpoint */
	__u32 identity;
	struct place place;
	struct address node;
};

struct work {
	__u64 now;
	__u32 generation; /* of the network, read before anything was asked */
	__u32 extent;	  /* of the first fragment of the datagram */
	struct flow flow;      /* the packet; one to a service becomes one to its backend */
	struct peer_key node;  /* that sent it, if it came through the tunnel */
	struct end source;
	struct end destination;
	struct flow wire;      /* the packet as it came */
	struct flow out;       /* as it goes out, if it is translated */
	struct flow reverse;   /* as its opener would have sent it */
	struct translation to; /* what became of a packet to a service */
	__u32 is_translated;
	__u32 is_to_itself; /* the answer of a pod that is its own backend */
	struct connection_key key;
	struct question question;
	struct connection fresh;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

static __always_inline struct work *work_at_hand(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&works, &first);
}

static __always_inline void begin_work(struct work *work, const struct flow *flow)
{
	work->now = bpf_ktime_get_coarse_ns();
	work->flow = *flow;
	work->wire = *flow;
	work->to = (struct translation){};
	work->is_translated = 0;
	work->is_to_itself = 0;
}

/* Before anything is asked that it stands for. Says whether the network has a place here. */
static __always_inline bool read_generation(struct work *work)
{
	struct network *network = network_at(work->flow.table);

	if (!network || network->network != work->flow.network)
		return false;
	work->generation = *(volatile __u32 *)&network->generation;
	barrier();
	return true;
}

/* Puts work->fresh in at work->key, in the place of what is there. */
static __noinline verdict put_in(__u32 table, struct work *work)
{
	struct connection *former = connection_at(&work->key);

	if (former && former->table == table)
		work->fresh.turn = former->turn;
	else if (!take_turn(table, &work->key, &work->fresh.turn, work->now))
		return DROP_CONNECTIONS_EXHAUSTED;
	if (bpf_map_update_elem(&connections, &work->key, &work->fresh, BPF_ANY))
		return DROP_CONNECTIONS_EXHAUSTED;
	return FINE;
}
