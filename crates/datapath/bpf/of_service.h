/* SPDX-License-Identifier: GPL-2.0 */
/* The fast paths of a packet to or from a service.
 *
 * At once: a routine packet needs one entry, as any other does. What leads its client's packets on has
 * the place of the backend, and the connection has the answers. A packet that changes its connection is
 * written down in both entries, so that neither is further than the other.
 *
 * Through both: one packet in each second, and what is not plain, goes by what leads on and by the
 * connection, so that neither is older than the other. */
#pragma once

#include "translate.h"
#include "work.h"

/* Whether an entry of a service that holds is enough for the packet. Then its destination becomes what
 * a client is led to, or its source what an answer comes from. Packets from and to the outside or
 * another network need more. */
static __always_inline bool is_served_at_once(const struct connection *known,
					      const struct flow *flow, bool from_high, __u64 now)
{
	bool leads_on = known->flags & CONNECTION_LEADS_ON;

	return !(known->flags & (CONNECTION_OUTSIDE | CONNECTION_ACROSS)) &&
	       was_just_seen(known, now) && is_by_sender(known, from_high) == leads_on &&
	       (leads_on || !same_address(&known->nat_address, &flow->destination)) &&
	       is_plain(flow);
}

/* The entry on the other side of the service: the connection that something leads to, or what leads to
 * the connection. It is that of the packet as it goes on, which is left in work->reverse. */
static __always_inline struct connection *other_side(struct work *work, const struct flow *flow,
						     const struct connection *known)
{
	struct flow *onward = &work->reverse;

	copy_flow(onward, flow);
	if (known->flags & CONNECTION_LEADS_ON) {
		onward->destination = known->nat_address;
		onward->transport.destination_port = known->nat_port;
	} else {
		onward->source = known->nat_address;
		onward->transport.source_port = known->nat_port;
	}
	name_connection(&work->key, onward, is_higher(onward));
	return connection_at(&work->key);
}

/* Writes down on both sides of the service that a packet passes which changes its connection. False,
 * and nothing is written, where a client is led to a connection that does not hold. */
static __noinline bool note_on_both_sides(struct __sk_buff *skb, struct flow *flow,
					  struct connection *known)
{
	struct network *network = network_at(known->table);
	__u64 now = bpf_ktime_get_coarse_ns();
	struct work *work = work_at_hand();
	struct connection *other;
	bool from_high;

	if (!work || !network)
		return false;
	other = other_side(work, flow, known);
	if (!(known->flags & CONNECTION_LEADS_ON)) {
		note(skb, flow, known, is_higher(flow), now);
		if (other && other->flags & CONNECTION_LEADS_ON)
			other->state = known->state;
		return true;
	}
	from_high = is_higher(&work->reverse);
	if (!other || (other->flags & OF_SERVICE) != CONNECTION_TRANSLATED ||
	    !is_by_sender(other, from_high) || !holds(other, network, &flow->transport, now))
		return false;
	note(skb, &work->reverse, other, from_high, now);
	known->state = other->state;
	return true;
}

/* Gives the packet the end that its entry says, which must be of the place `table` also after that was
 * read. Nothing, or an error. */
static __noinline long serve(struct __sk_buff *skb, struct flow *flow, struct connection *known,
			     __u32 table)
{
	struct new_end to = {
		.address = known->nat_address,
		.port = known->nat_port,
		.is_source = known->flags & CONNECTION_TRANSLATED,
	};

	barrier();
	if (*(volatile __u16 *)&known->table != table)
		return -1;
	return move_end(skb, flow, &to);
}

/* Follows a lead: the packet becomes one to the backend. */
static __always_inline struct connection *lead_on(struct work *work, struct connection *lead)
{
	struct flow *flow = &work->flow;

	work->led_at = lead->generation;
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

/* Whether a pod is led to itself, for which what leads on never holds by itself. */
static __always_inline bool is_led_back(const struct work *work)
{
	return same_address(&work->flow.source, &work->wire.destination);
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
 * or NULL where the slow path must be taken, which also renews what leads on. */
static __always_inline struct connection *through_service(struct work *work)
{
	struct connection *known;
	struct network *network;

	name_connection(&work->key, &work->flow, is_higher(&work->flow));
	known = connection_at(&work->key);
	if (known && known->flags & CONNECTION_LEADS_ON)
		known = is_by_sender(known, is_higher(&work->flow)) ? lead_on(work, known) : NULL;
	if (!known)
		return NULL;
	take_destination(work, known);
	network = network_at(known->table);
	if (!network || network->network != work->flow.network ||
	    (work->is_translated && work->led_at != network->generation && !is_led_back(work)) ||
	    known->flags & (CONNECTION_LEADS_ON | CONNECTION_OUTSIDE | CONNECTION_ACROSS) ||
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
