/* SPDX-License-Identifier: GPL-2.0 */
/* The slow path: what becomes of a packet about which nothing is decided, or not since its network
 * changed. The stages, in this order:
 *
 *   service.h    is the destination a service? then a backend takes its place
 *   from_*.c     where are both ends, and who are they
 *   identify     which connection is it, and what must be asked about it
 *   service.h    does the service still want it? asked where an answer comes to be decided anew
 *   policy.h     may it be? asked from its opener's direction
 *   conclude     the connection remembers
 *
 * Each finds what it needs in the work at hand, and is called from the program's second frame, so
 * that services and policy have more than half of the stack for themselves.
 *
 * The rule: an entry is stamped with the generation that was read before the first question. What
 * was refused stays refused, and keeps its opener, until it is decided otherwise or forgotten. */
#pragma once

#include "crossing.h"
#include "fragments.h"
#include "icmp_error.h"
#include "translate.h"
#include "work.h"

static __always_inline __u64 since(const struct work *work)
{
	return work->source.since > work->destination.since ? work->source.since :
							      work->destination.since;
}

/* Whether a packet goes another way to the other end than the connection that is known: through a
 * service or another one, or through none. Only one of both can have the answers. */
static __always_inline bool is_by_another_way(const struct connection *known,
					      const struct work *work, bool from_high)
{
	if (work->across || known->flags & CONNECTION_ACROSS)
		return !is_same_crossing(known, work);
	if (!(known->flags & CONNECTION_OUTSIDE) != !work->outside)
		return true;
	if (!is_by_sender(known, from_high))
		return false;
	if (!(known->flags & CONNECTION_TRANSLATED))
		return work->to.is_service;
	return !work->to.is_service || known->nat_port != work->wire.transport.destination_port ||
	       !same_address(&known->nat_address, &work->wire.destination);
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
static __noinline void recall_backend(struct work *work)
{
	struct connection *known;

	if (work->is_unknown)
		return;
	name_connection(&work->key, &work->flow, is_higher(&work->flow));
	known = connection_at(&work->key);
	if (!known || is_over(known, work->flow.transport.protocol, work->now))
		return;
	if (known->flags & CONNECTION_ACROSS)
		return recall_across(work, known);
	if (known->flags & CONNECTION_TRANSLATED)
		work->is_to_itself = same_address(&known->nat_address, &work->flow.destination);
	if (!(known->flags & CONNECTION_LEADS_ON) || !is_by_sender(known, is_higher(&work->flow)))
		return;
	work->to.network = work->flow.network;
	work->to.address = known->nat_address;
	work->to.port = known->nat_port;
	work->to.place = known->backend;
	work->to.is_kept = 1;
}

/* A packet to a service becomes one to its backend. */
static __always_inline verdict ask_service(struct __sk_buff *skb, struct work *work)
{
	verdict judged;

	if (is_whole_error(&work->flow.transport))
		speak_to_backend(skb, work);

	if (work->flow.transport.part == PART_LATER) {
		if (!find_first(&work->flow, work, 0))
			return FINE;
		work->wire.transport = work->flow.transport;
	}
	if (!can_be_served(&work->flow.transport))
		return FINE;
	recall_backend(work);
	if (work->is_to_itself)
		return FINE;
	judged = choose_backend(&work->flow, &work->to);
	if (judged != FINE || !work->to.is_service)
		return judged;
	if (work->to.network != work->flow.network)
		return lead_across(work);
	/* Nobody takes a packet from its own address. */
	if (same_address(&work->flow.source, &work->to.address)) {
		work->flow.source = work->flow.destination;
		work->to.is_free = 0;
	}
	work->flow.destination = work->to.address;
	work->flow.transport.destination_port = work->to.port;
	copy_flow(&work->out, &work->flow);
	work->is_translated = 1;
	return FINE;
}

/* Whether a service still wants the connection of which this packet is an answer. */
static __always_inline verdict ask_service_again(struct work *work)
{
	verdict judged = choose_backend(&work->reverse, &work->to);

	if (judged != FINE)
		return judged;
	return work->to.is_service && same_address(&work->to.address, &work->flow.source) &&
			       work->to.port == work->flow.transport.source_port ?
		       FINE :
		       DROP_NO_CONNECTION;
}

/* The packet that its client would have sent to the service, and the backend it has. */
static __always_inline void reverse_to_service(struct work *work, const struct connection *known)
{
	reverse_answer(work, known);
	work->to = (struct translation){ .network = work->flow.network,
					 .address = work->flow.source,
					 .port = work->flow.transport.source_port,
					 .place = known->backend,
					 .is_kept = 1 };
}

/* A pod that reaches itself through a service has the service's address on the way. */
static __always_inline bool is_own_backend(const struct work *work)
{
	return work->is_to_itself ||
	       (work->to.is_service && same_address(&work->wire.source, &work->flow.destination));
}

static __always_inline void pose(struct work *work, bool by_sender)
{
	const struct end *opener = by_sender ? &work->source : &work->destination;
	const struct end *other = by_sender ? &work->destination : &work->source;
	const struct transport *t = &work->flow.transport;
	struct question *question = &work->question;

	question->network = question->other_network = work->flow.network;
	question->opener = by_sender ? work->flow.source : work->flow.destination;
	question->other = by_sender ? work->flow.destination : work->flow.source;
	question->protocol = t->protocol;
	if (is_own_backend(work))
		question->opener = question->other;
	question->opener_is_outside = work->outside == (by_sender ? OUTSIDE_SENDER : OUTSIDE_RECEIVER);
	question->other_is_outside = work->outside == (by_sender ? OUTSIDE_RECEIVER : OUTSIDE_SENDER);
	question->opener_is_here = opener->place.ifindex && !question->opener_is_outside;
	question->other_is_here = other->place.ifindex && !question->other_is_outside;
	question->port = is_icmp(t->protocol) ? 0 :
			 by_sender	      ? t->destination_port :
						t->source_port;
	question->egress_rule = question->ingress_rule = 0;
	if (work->across)
		pose_across(work);
}

/* An error follows no connection; it speaks of one. */
static __always_inline verdict check_icmp(struct __sk_buff *skb, struct work *work)
{
	if (!is_error(&work->flow.transport))
		return check_kind(&work->flow.transport);
	work->outcome = OUTCOME_PASS;
	return check_error(skb, work, since(work));
}

/* Nobody knows what a part belongs to. */
static __always_inline verdict pass_unasked(struct work *work)
{
	work->outcome = OUTCOME_PASS;
	pose(work, true);
	return passes_unasked(&work->question) ? FINE : DROP_NO_CONNECTION;
}

/* A later fragment belongs where its first did. */
static __always_inline verdict check_part(struct work *work)
{
	if (!find_first(&work->flow, work, since(work)))
		return pass_unasked(work);
	return work->flow.transport.offset < work->extent ? DROP_OVERLAPPING_FRAGMENT : FINE;
}

/* A packet of a connection that is not known or not alive: whether it may begin one. A packet in
 * the middle may: policy is asked as if its sender had opened it. */
static __always_inline verdict begin(struct work *work)
{
	const struct transport *t = &work->flow.transport;

	if (work->outside == OUTSIDE_SENDER && !work->may_enter)
		return DROP_NO_CONNECTION;
	if (t->part == PART_LATER)
		return pass_unasked(work);
	if (!is_opening(t) && !is_continuing(t))
		return DROP_NO_CONNECTION;
	work->outcome = OUTCOME_OPEN;
	pose(work, true);
	return FINE;
}

/* A connection that goes on is asked about again, from its opener's direction. */
static __always_inline void renew(struct work *work, const struct connection *known,
				  bool from_high)
{
	bool by_sender = is_by_sender(known, from_high);

	work->outcome = OUTCOME_RENEW;
	work->asks_service = !by_sender && known->flags & CONNECTION_TRANSLATED && !work->across;
	if (work->asks_service)
		reverse_to_service(work, known);
	pose(work, by_sender);
}

/* Only who asks sends requests, and only the other end replies. The id 0 is no port, so that both
 * ends of such an echo could be either. */
static __always_inline bool is_against_its_way(const struct connection *known,
					       const struct transport *t, bool from_high)
{
	return is_icmp(t->protocol) && t->part != PART_LATER &&
	       is_opening(t) != is_by_sender(known, from_high);
}

/* What leads a client to a service is no connection with a pod that has the service's address, too:
 * whatever such a pod sent would take the place of what leads on. */
static __always_inline bool is_against_a_lead(const struct connection *known,
					      const struct work *work, bool from_high)
{
	return known->flags & CONNECTION_LEADS_ON && !is_by_sender(known, from_high) &&
	       known->opened >= since(work) &&
	       !is_over(known, work->flow.transport.protocol, work->now);
}

/* A connection takes the place of one that went another way, where that gives way. */
static __always_inline verdict take_over(struct work *work, const struct connection *known,
					 bool from_high)
{
	if (work->across || work->outside || !gives_way(known, &work->flow.transport, from_high))
		return DROP_NO_CONNECTION;
	forget_lead(work, known);
	return begin(work);
}

static __always_inline verdict find_connection(struct work *work)
{
	bool from_high = is_higher(&work->flow);
	struct connection *known;

	name_connection(&work->key, &work->flow, from_high);
	known = is_new(work) ? NULL : connection_at(&work->key);
	if (known && is_against_a_lead(known, work, from_high))
		return DROP_NO_CONNECTION;
	if (!known || !is_alive(known, &work->flow, work))
		return begin(work);
	if (is_by_another_way(known, work, from_high))
		return take_over(work, known, from_high);
	if (is_against_its_way(known, &work->flow.transport, from_high))
		return DROP_NO_CONNECTION;
	if (!is_settled(known, work))
		renew(work, known, from_high);
	return FINE;
}

/* Which connection the packet is of, and what must be asked about it. A verdict. */
__noinline int identify(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	verdict judged = FINE;

	if (!work)
		return DROP_KERNEL_REFUSED;
	work->outcome = OUTCOME_GO_ON;
	work->asks_service = 0;
	if (work->flow.transport.part == PART_LATER)
		judged = check_part(work);
	else if (is_icmp(work->flow.transport.protocol))
		judged = check_icmp(skb, work);
	if (judged != FINE || work->outcome == OUTCOME_PASS)
		return judged;
	return find_connection(work);
}

/* Writes down what was decided; the generation last, since it makes the rest hold. */
static __always_inline void settle(struct connection *entry, const struct work *work,
				   bool from_high)
{
	entry->low = from_high ? work->destination.place : work->source.place;
	entry->high = from_high ? work->source.place : work->destination.place;
	entry->node = work->is_masked		   ? work->client :
		      work->source.place.ifindex ? work->destination.node :
						   work->source.node;
	if (work->across) {
		note_crossing(entry, work);
	} else {
		entry->egress_rule = work->question.egress_rule;
		entry->ingress_rule = work->question.ingress_rule;
	}
	entry->table = work->flow.table;
	entry->flags &= ~CONNECTION_DENIED;
	barrier();
	*(volatile __u32 *)&entry->generation = work->generation;
}

/* Whether something must lead the opener's next packets on. */
static __always_inline bool needs_lead(const struct work *work)
{
	return work->to.is_service || work->across == ACROSS_HERE;
}

/* What leads the opener's packets from a service to its backend, and where that is. A pod that is its
 * own backend has more to change in its packets than where they go, and asks the connection. */
static __always_inline verdict put_lead(struct work *work, __u8 state)
{
	bool from_high = is_higher(&work->wire);
	struct connection *fresh = &work->fresh;

	name_connection(&work->key, &work->wire, from_high);
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->opened = fresh->last_seen = work->now;
	fresh->state = state;
	fresh->flags = CONNECTION_LEADS_ON | (from_high ? CONNECTION_OPENED_BY_HIGH : 0);
	settle(fresh, work, from_high);
	if (is_own_backend(work))
		fresh->generation = 0;
	fresh->backend = work->to.place;
	fresh->nat_address = work->flow.destination;
	fresh->nat_port = work->to.port;
	if (work->across)
		lead_into_network(work);
	return put_in(work, work->is_unknown);
}

/* Makes the entry, in the place of one that is over. What breaks off a connection that nobody
 * knows leaves none. */
static __always_inline verdict open(struct __sk_buff *skb, struct work *work)
{
	const struct transport *t = &work->flow.transport;
	bool from_high = is_higher(&work->flow), opens = is_opening(t);
	struct connection *fresh = &work->fresh;
	verdict judged;

	if (!opens && (breaks_off(t) || is_last_word(t)))
		return FINE;
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->opened = fresh->last_seen = work->now;
	fresh->state = opens ? STATE_NEW : STATE_ESTABLISHED;
	fresh->flags = from_high ? CONNECTION_OPENED_BY_HIGH : 0;
	if (work->to.is_service) {
		fresh->flags |= CONNECTION_TRANSLATED;
		fresh->nat_address = work->wire.destination;
		fresh->nat_port = work->wire.transport.destination_port;
		fresh->backend = work->to.place;
	}
	if (work->outside) {
		fresh->flags |= CONNECTION_OUTSIDE;
		fresh->nat_address = work->face.address;
		fresh->nat_port = work->face.port;
		fresh->near_port = work->is_masked ? work->client_port : 0;
	}
	settle(fresh, work, from_high);
	judged = put_in(work, is_new(work));
	if (judged == FINE)
		tell_flow(skb, &work->flow, fresh, EVENT_OPENED);
	return judged == FINE && needs_lead(work) ? put_lead(work, fresh->state) : judged;
}

/* A packet of a connection that is known passes. */
static __always_inline verdict go_on(struct __sk_buff *skb, struct work *work,
				     struct connection *known, bool from_high)
{
	note(skb, &work->flow, known, from_high, work->now);
	if (is_by_sender(known, from_high))
		return needs_lead(work) ? put_lead(work, known->state) : FINE;
	if (known->flags & CONNECTION_TRANSLATED) {
		keep_lead(work, known);
		answer_for_service(work, known);
	}
	return FINE;
}

/* The later parts of a datagram to a service come as the first did: to the service. */
static __always_inline verdict remember_first_of_both(struct work *work)
{
	verdict judged = remember_first(work);

	if (judged != FINE || !work->to.is_service)
		return judged;
	copy_flow(&work->flow, &work->wire);
	return remember_first(work);
}

/* Keeps what was judged, and says it. The entry may have made room for another meanwhile; then the
 * next packet finds none. */
__noinline int conclude(struct __sk_buff *skb, __u32 judged)
{
	struct work *work = work_at_hand();
	struct connection *known;
	bool from_high;

	if (!work)
		return DROP_KERNEL_REFUSED;
	from_high = is_higher(&work->flow);
	known = work->outcome == OUTCOME_OPEN ? NULL : connection_at(&work->key);
	if (known && work->outcome == OUTCOME_RENEW) {
		if (judged == FINE)
			settle(known, work, from_high);
		else
			known->flags |= CONNECTION_DENIED;
	}
	if (judged != FINE)
		return judged;
	if (work->outcome == OUTCOME_OPEN)
		judged = open(skb, work);
	else if (known)
		judged = go_on(skb, work, known, from_high);
	if (judged == FINE && work->flow.transport.part == PART_FIRST)
		return remember_first_of_both(work);
	return judged;
}

/* Both ends are known, and a service was asked: what becomes of the packet. */
static __always_inline verdict decide(struct __sk_buff *skb, struct work *work)
{
	verdict judged = identify(skb);

	if (judged != FINE || work->outcome == OUTCOME_PASS)
		return judged;
	if (work->asks_service)
		judged = ask_service_again(work);
	if (judged == FINE && work->outcome != OUTCOME_GO_ON)
		judged = judge_policy(&work->question);
	return conclude(skb, judged);
}
