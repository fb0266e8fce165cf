/* SPDX-License-Identifier: GPL-2.0 */
/* The slow path: what becomes of a packet about which nothing is decided, or not since its network
 * changed. The stages, in this order:
 *
 *   service.h   is the destination a service? then a backend takes its place
 *   (here)      where are both ends, and who are they
 *   fragments.h, icmp_error.h   which connection does it speak of
 *   policy.h    may the connection be? asked from its opener's direction
 *   (here)      the connection remembers
 *
 * The rule: an entry is stamped with the generation that was read before the first question. What
 * was refused stays refused, and keeps its opener, until it is decided otherwise or forgotten. */
#pragma once

#include "fragments.h"
#include "icmp_error.h"
#include "translate.h"
#include "work.h"

static __always_inline struct endpoint *endpoint_of(__u32 network, const struct address *ip)
{
	struct endpoint_key key = { .network = network, .address = *ip };

	return bpf_map_lookup_elem(&endpoints, &key);
}

static __always_inline void note_end(struct end *end, const struct endpoint *endpoint)
{
	end->since = endpoint->since;
	end->identity = endpoint->identity;
	end->node = endpoint->node;
	end->place.ifindex = endpoint->ifindex;
	end->place.slot = endpoint->slot;
	copy_mac(end->place.mac, endpoint->mac);
}

static __always_inline __u64 since(const struct work *work)
{
	return work->source.since > work->destination.since ? work->source.since :
							      work->destination.since;
}

static __always_inline bool is_alive(const struct connection *known, const struct flow *flow,
				     const struct work *work)
{
	return known->opened >= since(work) && !(known->flags & CONNECTION_LEADS_ON) &&
	       !is_over(known, flow->transport.protocol, work->now) &&
	       !is_reopened(known, &flow->transport);
}

/* The backend that a client's connection to a service has, if it has one. A pod that is its own
 * backend sees the service as its client, and answers there. */
static __always_inline void recall_backend(const struct flow *flow, struct work *work)
{
	struct connection *known;

	name_connection(&work->key, flow, is_higher(flow));
	known = connection_at(&work->key);
	if (!known || is_over(known, flow->transport.protocol, work->now))
		return;
	if (known->flags & CONNECTION_TRANSLATED)
		work->is_to_itself = same_address(&known->nat_address, &flow->destination);
	if (!(known->flags & CONNECTION_LEADS_ON))
		return;
	work->to.address = known->nat_address;
	work->to.port = known->nat_port;
	work->to.place = known->backend;
	work->to.is_kept = 1;
}

/* A packet to a service becomes one to its backend. */
static __always_inline verdict ask_service(struct work *work)
{
	struct flow *flow = &work->flow;
	verdict judged;

	if (flow->transport.part == PART_LATER) {
		if (!find_first(flow, work, 0))
			return FINE;
		work->wire.transport = flow->transport;
	}
	if (!can_be_served(&flow->transport))
		return FINE;
	recall_backend(flow, work);
	if (work->is_to_itself)
		return FINE;
	judged = choose_backend(flow, &work->to);
	if (judged != FINE || !work->to.is_service)
		return judged;
	/* Nobody takes a packet from its own address. */
	if (same_address(&flow->source, &work->to.address))
		flow->source = flow->destination;
	flow->destination = work->to.address;
	flow->transport.destination_port = work->to.port;
	work->out = *flow;
	work->is_translated = 1;
	return FINE;
}

/* Whether a service still wants the connection of which this packet is an answer. */
static __always_inline verdict ask_service_again(const struct flow *flow, struct work *work,
						 const struct connection *known)
{
	verdict judged;

	work->reverse = *flow;
	work->reverse.source = flow->destination;
	work->reverse.destination = known->nat_address;
	work->reverse.transport.source_port = flow->transport.destination_port;
	work->reverse.transport.destination_port = known->nat_port;
	work->to = (struct translation){ .address = flow->source,
					 .port = flow->transport.source_port,
					 .place = known->backend,
					 .is_kept = 1 };
	judged = choose_backend(&work->reverse, &work->to);
	if (judged != FINE)
		return judged;
	return work->to.is_service && same_address(&work->to.address, &flow->source) &&
			       work->to.port == flow->transport.source_port ?
		       FINE :
		       DROP_NO_CONNECTION;
}

static __always_inline void pose(const struct flow *flow, struct work *work, bool by_sender)
{
	const struct end *opener = by_sender ? &work->source : &work->destination;
	const struct end *other = by_sender ? &work->destination : &work->source;
	const struct transport *t = &flow->transport;

	work->question = (struct question){
		.network = flow->network,
		.opener_identity = opener->identity,
		.other_identity = other->identity,
		.opener = by_sender ? flow->source : flow->destination,
		.other = by_sender ? flow->destination : flow->source,
		.protocol = t->protocol,
		.opener_is_here = opener->place.ifindex != 0,
		.other_is_here = other->place.ifindex != 0,
	};
	if (!is_icmp(t->protocol))
		work->question.port = by_sender ? t->destination_port : t->source_port;
}

/* Writes down what was decided; the generation last, since it makes the rest hold. */
static __always_inline void settle(struct connection *entry, const struct flow *flow,
				   const struct work *work, bool from_high)
{
	entry->low = from_high ? work->destination.place : work->source.place;
	entry->high = from_high ? work->source.place : work->destination.place;
	entry->node = work->source.place.ifindex ? work->destination.node : work->source.node;
	entry->egress_rule = work->question.egress_rule;
	entry->ingress_rule = work->question.ingress_rule;
	entry->table = flow->table;
	entry->flags &= ~CONNECTION_DENIED;
	barrier();
	*(volatile __u32 *)&entry->generation = work->generation;
}

/* What leads the opener's packets from a service to its backend, for as long as their connection
 * lasts. */
static __always_inline verdict put_lead(const struct flow *flow, struct work *work, __u8 state)
{
	bool from_high = is_higher(&work->wire);

	name_connection(&work->key, &work->wire, from_high);
	work->fresh = (struct connection){
		.opened = work->now,
		.last_seen = work->now,
		.state = state,
		.flags = CONNECTION_LEADS_ON,
		.nat_address = flow->destination,
		.nat_port = work->to.port,
		.backend = work->to.place,
	};
	settle(&work->fresh, flow, work, from_high);
	return put_in(flow->table, work);
}

/* The lead of a connection of which an answer passes is as old and as far as the connection. */
static __always_inline void keep_lead(const struct flow *flow, struct work *work,
				      const struct connection *known)
{
	struct connection *lead;

	work->reverse = *flow;
	work->reverse.source = flow->destination;
	work->reverse.destination = known->nat_address;
	work->reverse.transport.source_port = flow->transport.destination_port;
	work->reverse.transport.destination_port = known->nat_port;
	if (work->is_to_itself)
		work->reverse.source = flow->source;
	name_connection(&work->key, &work->reverse, is_higher(&work->reverse));
	lead = connection_at(&work->key);
	if (!lead || !(lead->flags & CONNECTION_LEADS_ON))
		return;
	lead->state = known->state;
	lead->last_seen = known->last_seen;
}

/* Makes the entry, in the place of one that is over. What breaks off a connection that nobody
 * knows leaves none. */
static __noinline verdict open(struct __sk_buff *skb, struct flow *flow, struct work *work)
{
	bool from_high = is_higher(flow), opens = is_opening(&flow->transport);
	verdict judged;

	if (!opens && (breaks_off(&flow->transport) || is_last_word(&flow->transport)))
		return FINE;
	work->fresh = (struct connection){
		.opened = work->now,
		.last_seen = work->now,
		.state = opens ? STATE_NEW : STATE_ESTABLISHED,
		.flags = from_high ? CONNECTION_OPENED_BY_HIGH : 0,
	};
	if (work->to.is_service) {
		work->fresh.flags |= CONNECTION_TRANSLATED;
		work->fresh.nat_address = work->wire.destination;
		work->fresh.nat_port = work->wire.transport.destination_port;
		work->fresh.backend = work->to.place;
	}
	settle(&work->fresh, flow, work, from_high);
	judged = put_in(flow->table, work);
	if (judged != FINE)
		return judged;
	tell_flow(skb, flow, &work->fresh, EVENT_OPENED);
	return work->to.is_service ? put_lead(flow, work, work->fresh.state) : FINE;
}

/* A packet of a connection that is not known or not alive: whether it may begin one. A packet in
 * the middle may: policy is asked as if its sender had opened it. */
static __always_inline verdict begin(struct __sk_buff *skb, struct flow *flow, struct work *work)
{
	verdict judged;

	pose(flow, work, true);
	if (flow->transport.part == PART_LATER)
		return passes_unasked(&work->question) ? FINE : DROP_NO_CONNECTION;
	if (!is_opening(&flow->transport) && !is_continuing(&flow->transport))
		return DROP_NO_CONNECTION;
	judged = judge_policy(&work->question);
	return judged == FINE ? open(skb, flow, work) : judged;
}

/* A connection that goes on is asked about again, from its opener's direction. */
static __always_inline verdict renew(struct flow *flow, struct work *work,
				     struct connection *known, bool from_high)
{
	bool by_sender = is_by_sender(known, from_high);
	verdict judged = FINE;

	if (!by_sender && known->flags & CONNECTION_TRANSLATED)
		judged = ask_service_again(flow, work, known);
	pose(flow, work, by_sender);
	if (judged == FINE)
		judged = judge_policy(&work->question);
	if (judged == FINE)
		settle(known, flow, work, from_high);
	else
		known->flags |= CONNECTION_DENIED;
	return judged;
}

static __always_inline bool is_settled(const struct connection *known, const struct flow *flow,
				       const struct work *work)
{
	return known->generation == work->generation && known->table == flow->table &&
	       !(known->flags & CONNECTION_DENIED);
}

/* The answer of a service comes from where its client had asked. */
static __always_inline void answer_for_service(struct work *work, const struct connection *known)
{
	work->out = work->wire;
	work->out.source = known->nat_address;
	work->out.transport.source_port = known->nat_port;
	if (work->is_to_itself)
		work->out.destination = work->wire.source;
	work->is_translated = 1;
}

/* Whether the opener's packet comes the way that its connection was opened: straight, or through
 * the same service. Answers could not be told apart otherwise. */
static __always_inline bool is_same_way(const struct connection *known, const struct work *work)
{
	if (!(known->flags & CONNECTION_TRANSLATED))
		return !work->to.is_service;
	return work->to.is_service &&
	       known->nat_port == work->wire.transport.destination_port &&
	       same_address(&known->nat_address, &work->wire.destination);
}

static __always_inline verdict follow(struct __sk_buff *skb, struct flow *flow, struct work *work)
{
	bool from_high = is_higher(flow);
	struct connection *known;
	verdict judged;

	name_connection(&work->key, flow, from_high);
	known = connection_at(&work->key);
	if (!known || !is_alive(known, flow, work))
		return begin(skb, flow, work);
	if (is_by_sender(known, from_high) && !is_same_way(known, work))
		return DROP_NO_CONNECTION;
	if (!is_settled(known, flow, work)) {
		judged = renew(flow, work, known, from_high);
		if (judged != FINE)
			return judged;
	}
	note(skb, flow, known, from_high, work->now);
	if (is_by_sender(known, from_high))
		return work->to.is_service ? put_lead(flow, work, known->state) : FINE;
	if (known->flags & CONNECTION_TRANSLATED) {
		keep_lead(flow, work, known);
		answer_for_service(work, known);
	}
	return FINE;
}

/* An error follows no connection; it speaks of one. */
static __always_inline verdict check_icmp(struct __sk_buff *skb, struct work *work, bool *follows)
{
	*follows = !is_error(&work->flow.transport);
	return *follows ? check_kind(&work->flow.transport) :
			  check_error(skb, work, since(work));
}

/* A later fragment belongs where its first did. */
static __always_inline verdict check_part(struct work *work, bool *follows)
{
	*follows = find_first(&work->flow, work, since(work));
	if (*follows)
		return work->flow.transport.offset < work->extent ? DROP_OVERLAPPING_FRAGMENT : FINE;
	pose(&work->flow, work, true);
	return passes_unasked(&work->question) ? FINE : DROP_NO_CONNECTION;
}

/* Both ends are known, and a service was asked: what becomes of the packet. A verdict. */
__noinline int decide(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	verdict judged = FINE;
	bool follows = true;

	if (!work)
		return DROP_KERNEL_REFUSED;
	if (work->flow.transport.part == PART_LATER)
		judged = check_part(work, &follows);
	else if (is_icmp(work->flow.transport.protocol))
		judged = check_icmp(skb, work, &follows);
	if (judged != FINE || !follows)
		return judged;
	judged = follow(skb, &work->flow, work);
	if (judged != FINE || work->flow.transport.part != PART_FIRST)
		return judged;
	if (work->to.is_service) {
		work->reverse = work->wire;
		judged = remember_first(&work->reverse, work);
	}
	return judged == FINE ? remember_first(&work->flow, work) : judged;
}
