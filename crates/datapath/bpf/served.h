/* SPDX-License-Identifier: GPL-2.0 */
/* The fast path of services: a packet in the middle of a connection through one needs its entry and
 * no more.
 *
 * The rule: the slow path (decide.h) keeps the lead of a connection as far and as old as the
 * connection, so whatever could change either goes there, and at least one packet each second. */
#pragma once

#include "rewrite.h"

static __always_inline bool is_served(const struct connection *known, const struct flow *flow,
				      bool from_high, __u64 now)
{
	if (known->flags & CONNECTION_DENIED || !is_routine(known, &flow->transport) ||
	    passed(known->last_seen, now) > SEEN_AGAIN)
		return false;
	/* A pod that is its own backend has two ends changed, which is rare. */
	if (known->flags & CONNECTION_LEADS_ON)
		return !same_address(&known->nat_address, &flow->source);
	return known->flags & CONNECTION_TRANSLATED && !is_by_sender(known, from_high) &&
	       !same_address(&known->nat_address, &flow->destination);
}

/* Gives a packet its other end. Nothing, or an error. */
static __noinline int serve(struct __sk_buff *skb, struct flow *flow, struct connection *known)
{
	struct work *work = work_at_hand();

	if (!work)
		return -1;
	work->wire = *flow;
	work->out = *flow;
	if (known->flags & CONNECTION_LEADS_ON) {
		work->out.destination = known->nat_address;
		work->out.transport.destination_port = known->nat_port;
	} else {
		work->out.source = known->nat_address;
		work->out.transport.source_port = known->nat_port;
	}
	return rewrite(skb);
}
