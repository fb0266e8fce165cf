/* SPDX-License-Identifier: GPL-2.0 */
/* What comes from somebody in no network to a pod: by the uplink, or from the node's own stack.
 *
 * The rule: what belongs to a connection of a pod reaches that pod, as one of the connection that the
 * pod knows, and nobody else. It opens nothing; only a door may let more in (enter.h). */
#pragma once

#include "constants.h"
#include "decide.h"
#include "deliver.h"
#include "drops.h"
#include "maps.h"
#include "masked.h"
#include "quote_outside.h"
#include "send_outside.h"

/* The packet is for the pod that the way in leads to. */
static __always_inline void turn_to_pod(struct work *work, const struct connection *way)
{
	work->flow.network = way->network;
	work->flow.table = way->table;
	work->flow.destination = way->nat_address;
	work->outside = OUTSIDE_SENDER;
}

/* It becomes one of the connection that the way in is of. */
static __always_inline void follow_way_in(struct work *work, const struct connection *way)
{
	turn_to_pod(work, way);
	work->flow.transport.destination_port = way->nat_port;
	if (way->mask)
		wear_mask(work, (__be16)way->mask);
	copy_flow(&work->out, &work->flow);
}

/* Whether it is an error, which belongs to what it quotes. */
static __always_inline bool is_about_another(const struct transport *t)
{
	return is_icmp(t->protocol) && is_error(t);
}

/* The way in of the packet at hand, by the packet that it is about. NULL where it is the node's. */
static __noinline struct connection *find_way_in(struct __sk_buff *skb, struct work *work)
{
	bool is_error = is_about_another(&work->flow.transport);
	const struct flow *seen = &work->flow;
	struct connection *way;

	if (is_error) {
		if (!read_quoted(skb, work))
			return NULL;
		seen = &work->reverse;
	} else if (seen->transport.part == PART_LATER) {
		if (!find_first(&work->flow, work, 0))
			return NULL;
		work->wire.transport = work->flow.transport;
	}
	name_way_in(work, seen, is_error);
	way = connection_at(&work->key);
	return way && !is_over(way, work->key.protocol, work->now) ? way : NULL;
}

static __always_inline verdict find_pod(struct work *work)
{
	struct endpoint *to = endpoint_of(work->flow.network, &work->flow.destination);

	if (!to || (to->ifindex && to->table != work->flow.table))
		return DROP_NO_ENDPOINT;
	note_end(&work->destination, to);
	__builtin_memset(&work->source, 0, sizeof(work->source));
	work->source.place.ifindex = work->loops ? LOOP_IFINDEX : UPLINK_IFINDEX;
	return read_generation(work) ? FINE : DROP_CONNECTIONS_EXHAUSTED;
}

/* Datagrams of many clients go on with one sender, the gateway (mask.h). */
static __noinline verdict number_masked(struct work *work)
{
	verdict judged = take_number(work);

	work->out.transport.id = work->flow.transport.id;
	return judged;
}

static __always_inline verdict judge_entering(struct __sk_buff *skb, struct work *work)
{
	verdict judged = identify(skb);

	if (judged == FINE)
		judged = check_sum(&work->flow.transport);
	if (judged != FINE)
		return judged;
	if (work->outcome == OUTCOME_PASS)
		return DROP_NO_CONNECTION;
	if (work->outcome != OUTCOME_GO_ON)
		judged = judge_policy(&work->question);
	return conclude(skb, judged);
}

/* The pod's side of the packet, to which the way in leads. */
static __always_inline void turn_round(struct work *work)
{
	const struct flow *in = &work->out;
	struct flow *back = &work->sender;

	copy_flow(back, in);
	back->source = in->destination;
	back->destination = in->source;
	back->transport.source_port = in->transport.destination_port;
	back->transport.destination_port = in->transport.source_port;
}

static __noinline verdict enter(struct __sk_buff *skb, struct work *work)
{
	verdict judged = find_pod(work);

	if (judged == FINE && work->is_masked && work->wire.transport.part != PART_WHOLE)
		judged = number_masked(work);
	if (judged == FINE)
		judged = judge_entering(skb, work);
	if (judged != FINE)
		return judged;
	turn_round(work);
	judged = keep_way_in(work, &work->wire);
	if (judged == FINE && work->wire.transport.part == PART_FIRST)
		judged = remember_as_it_came(work);
	if (judged == FINE && (rewrite_outside(skb) || renumber(skb, work)))
		judged = DROP_KERNEL_REFUSED;
	return judged;
}

static __noinline verdict enter_error(struct __sk_buff *skb, struct work *work)
{
	verdict judged = find_pod(work);

	if (judged != FINE)
		return judged;
	return rewrite(skb) ? DROP_KERNEL_REFUSED : FINE;
}

/* To the pod, wherever it is. */
static __noinline int hand_in(struct __sk_buff *skb, struct work *work)
{
	struct ethhdr *eth = frame_start(skb, sizeof(*eth));

	copy_flow(&work->flow, &work->out);
	if (!work->destination.place.ifindex)
		return send_to_node(skb);
	return eth ? deliver_here(skb, eth, &work->destination.place) :
		     drop(skb, work->out.network, DROP_MALFORMED);
}

/* An error about a packet that went out by the way. */
static __always_inline int bring_error(struct __sk_buff *skb, struct work *work,
				       const struct connection *way)
{
	verdict judged = DROP_UNRELATED_ICMP;

	turn_to_pod(work, way);
	turn_quote(work, way);
	if (read_generation(work) && is_about_connection(work))
		judged = enter_error(skb, work);
	return judged == FINE ? hand_in(skb, work) : drop(skb, work->flow.network, judged);
}

/* Whether the pod of the way in is still the one that it was made for, and takes the packet: not where
 * a first word comes after the end, nor to a pod that is gone or came later with the same address. */
static __always_inline bool is_for_its_pod(const struct connection *way, const struct work *work)
{
	const struct endpoint_key key = { .network = way->network, .address = way->nat_address };
	struct endpoint *pod = bpf_map_lookup_elem(&endpoints, &key);

	return pod && pod->since <= way->opened && !is_reopened(way, &work->flow.transport);
}
