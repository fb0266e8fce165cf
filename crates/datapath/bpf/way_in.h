/* SPDX-License-Identifier: GPL-2.0 */
/* The way in is kept as far as its connection is: one that outlived it would stand in the way of
 * others, and without it no answer arrives. */
#pragma once

#include "outside.h"

/* How far the connection of `flow`, as its network knows it, is. */
static __always_inline __u8 state_of(struct work *work, const struct flow *flow)
{
	struct connection *known;

	name_connection(&work->key, flow, is_higher(flow));
	known = connection_at(&work->key);
	return known ? known->state : STATE_NEW;
}

/* Keeps the way in of `seen`, a packet as the outside sees it, to the sender of work->sender. */
static __noinline verdict keep_way_in(struct work *work, struct flow *seen)
{
	__be16 mask = work->is_masked ? work->sender.transport.destination_port : 0;
	__u8 state = state_of(work, &work->sender);
	struct connection *fresh = &work->fresh;
	struct connection *way;

	name_way_in(work, seen, work->outside == OUTSIDE_RECEIVER);
	way = connection_at(&work->key);
	if (way && leads_to(way, &work->sender)) {
		way->state = state;
		way->mask = mask;
		if (!was_just_seen(way, work->now))
			way->last_seen = work->now;
		return FINE;
	}
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->opened = fresh->last_seen = work->now;
	fresh->table = work->sender.table;
	fresh->network = work->sender.network;
	fresh->state = state;
	fresh->mask = mask;
	fresh->nat_address = work->sender.source;
	fresh->nat_port = work->sender.transport.source_port;
	if (work->may_enter) {
		fresh->flags = CONNECTION_LEADS_ON;
		fresh->backend = work->entered_at;
		fresh->generation = work->generation;
	}
	return put_in(work, !way);
}
