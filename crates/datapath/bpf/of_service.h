/* SPDX-License-Identifier: GPL-2.0 */
/* The fast path of a packet to or from a service: what leads its client's packets on, and then their
 * connection, which also has the answers. */
#pragma once

#include "work.h"

/* Follows a lead: the packet becomes one to the backend. */
static __always_inline struct connection *lead_on(struct work *work, struct connection *lead)
{
	struct flow *flow = &work->flow;

	if (passed(lead->last_seen, work->now) > SEEN_AGAIN)
		lead->last_seen = work->now;
	if (same_address(&flow->source, &lead->nat_address))
		flow->source = flow->destination;
	flow->destination = lead->nat_address;
	flow->transport.destination_port = lead->nat_port;
	copy_flow(&work->out, flow);
	work->is_translated = 1;
	name_connection(&work->key, flow, is_higher(flow));
	return connection_at(&work->key);
}

/* Where the packet goes. It is taken from the entry before the entry is seen to be of this network, as
 * in from_pod and for the same reason. */
static __always_inline void take_destination(struct work *work, const struct connection *known)
{
	work->destination.place = is_higher(&work->flow) ? known->low : known->high;
	work->destination.node = known->node;
	barrier();
}

/* The connection of the packet at hand with what must be written into the packet and where it goes,
 * or NULL where the slow path must be taken. */
static __always_inline struct connection *through_service(struct work *work)
{
	struct connection *known;
	struct network *network;

	name_connection(&work->key, &work->flow, is_higher(&work->flow));
	known = connection_at(&work->key);
	if (known && known->flags & CONNECTION_LEADS_ON)
		known = lead_on(work, known);
	if (!known)
		return NULL;
	take_destination(work, known);
	network = network_at(known->table);
	if (!network || network->network != work->flow.network ||
	    known->flags & (CONNECTION_LEADS_ON | CONNECTION_OUTSIDE) ||
	    !holds(known, network, &work->flow.transport, work->now))
		return NULL;
	/* Straight, or through the service: only the way that it was opened. */
	if (is_by_sender(known, is_higher(&work->flow)))
		return !work->is_translated == !(known->flags & CONNECTION_TRANSLATED) ? known : NULL;
	/* Where a service leads to is no client of it. */
	if (work->is_translated)
		return NULL;
	if (known->flags & CONNECTION_TRANSLATED) {
		work->is_to_itself = same_address(&known->nat_address, &work->flow.destination);
		answer_for_service(work, known);
	}
	return known;
}
