/* SPDX-License-Identifier: GPL-2.0 */
/* Connections: how far one is, how long it is remembered, and what a packet of it changes.
 *
 * The rule: an entry says what was decided, and holds only at the generation of its network at
 * which that was. What it says of anything else must be decided anew (decide.h). */
#pragma once

#include "events.h"
#include "flow.h"
#include "signs.h"

#define SEEN_AGAIN SECONDS(1)

static __always_inline __u64 lifetime(__u8 protocol, __u8 state)
{
	bool is_stream = protocol == TCP_PROTOCOL || protocol == SCTP_PROTOCOL;

	switch (state) {
	case STATE_ESTABLISHED:
		return is_stream ? SECONDS(LASTS_ESTABLISHED_STREAM) : SECONDS(LASTS_ESTABLISHED);
	case STATE_CLOSING:
		return SECONDS(LASTS_CLOSING);
	case STATE_CLOSED:
		return SECONDS(LASTS_CLOSED);
	default:
		return is_stream ? SECONDS(LASTS_NEW_STREAM) : SECONDS(LASTS_NEW);
	}
}

static __always_inline bool is_over(const struct connection *known, __u8 protocol, __u64 now)
{
	return passed(known->last_seen, now) > lifetime(protocol, known->state);
}

/* What comes in the middle of a connection, and makes sense there. */
static __always_inline bool is_continuing(const struct transport *t)
{
	__u8 flags = t->signs & (TCP_SYN | TCP_ACK | TCP_FIN | TCP_RST);

	if (t->protocol == ICMP_PROTOCOL)
		return t->signs == ICMP_ECHO_REPLY;
	if (t->protocol == IPV6_ICMP)
		return t->signs == ICMPV6_ECHO_REPLY;
	if (t->protocol != TCP_PROTOCOL)
		return true;
	return flags && !(flags & TCP_SYN && flags & (TCP_FIN | TCP_RST));
}

static __noinline void tell_flow(struct __sk_buff *skb, struct flow *flow,
				 struct connection *known, enum event_kind kind)
{
	struct event *event = is_watched() ? new_event(skb, flow->network, kind) : NULL;

	if (!event)
		return;
	event->source = flow->source;
	event->destination = flow->destination;
	event->source_port = flow->transport.source_port;
	event->destination_port = flow->transport.destination_port;
	event->protocol = flow->transport.protocol;
	event->egress_rule = known->flags & CONNECTION_ACROSS ? 0 : known->egress_rule;
	event->ingress_rule = known->flags & CONNECTION_ACROSS ? 0 : known->ingress_rule;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline void close(struct __sk_buff *skb, struct flow *flow,
				  struct connection *known)
{
	if (known->state == STATE_CLOSED)
		return;
	known->state = STATE_CLOSED;
	tell_flow(skb, flow, known, EVENT_CLOSED);
}

/* A packet of a known connection may move it to another state. */
static __noinline void advance(struct __sk_buff *skb, struct flow *flow, struct connection *known,
			       bool from_high)
{
	const __u8 both = CONNECTION_LOW_IS_DONE | CONNECTION_HIGH_IS_DONE;
	bool by_high = known->flags & CONNECTION_OPENED_BY_HIGH;

	if (breaks_off(&flow->transport))
		return close(skb, flow, known);
	if (is_last_word(&flow->transport)) {
		known->flags |= from_high ? CONNECTION_HIGH_IS_DONE : CONNECTION_LOW_IS_DONE;
		if ((known->flags & both) == both)
			return close(skb, flow, known);
		if (known->state != STATE_CLOSED)
			known->state = STATE_CLOSING;
		return;
	}
	if (known->state == STATE_NEW && by_high != from_high)
		known->state = STATE_ESTABLISHED;
}

static __always_inline bool is_by_sender(const struct connection *known, bool from_high)
{
	return !(known->flags & CONNECTION_OPENED_BY_HIGH) == !from_high;
}

/* Whether a packet changes nothing about its connection. */
static __always_inline bool is_routine(const struct connection *known, const struct transport *t)
{
	if (known->state != STATE_ESTABLISHED)
		return false;
	if (t->protocol == TCP_PROTOCOL)
		return !(t->signs & (TCP_SYN | TCP_FIN | TCP_RST));
	return t->protocol == UDP_PROTOCOL;
}

/* Whether the latest packet of the connection was so short a while ago that it is neither over nor
 * written down again. */
static __always_inline bool was_just_seen(const struct connection *known, __u64 now)
{
	return known->last_seen + SEEN_AGAIN >= now;
}

/* A packet of the connection passes. */
static __always_inline void note(struct __sk_buff *skb, struct flow *flow, struct connection *known,
				 bool from_high, __u64 now)
{
	if (!was_just_seen(known, now) && known->state != STATE_CLOSED)
		known->last_seen = now;
	if (!is_routine(known, &flow->transport))
		advance(skb, flow, known, from_high);
}

/* Whether a first word comes where a connection with the same ends has ended, and opens another. */
static __always_inline bool is_reopened(const struct connection *known, const struct transport *t)
{
	return known->state >= STATE_CLOSING && t->part != PART_LATER && is_opening(t);
}

/* Where the packet goes. Copied whole from one address, which the compiler would choose for each
 * field anew. */
static __always_inline struct place place_of_receiver(const struct connection *known,
						      bool from_high)
{
	const struct place *to = from_high ? &known->low : &known->high;

	asm volatile("" : "+r"(to));
	return *to;
}

/* Whether what was decided about the connection holds for this packet of it. */
static __always_inline bool holds(const struct connection *known, const struct network *network,
				  const struct transport *t, __u64 now)
{
	return known->generation == network->generation && !(known->flags & CONNECTION_DENIED) &&
	       !is_reopened(known, t) &&
	       (was_just_seen(known, now) || !is_over(known, t->protocol, now));
}

/* What takes more than to find the connection. */
#define OF_SERVICE (CONNECTION_TRANSLATED | CONNECTION_LEADS_ON | CONNECTION_OUTSIDE)

/* Whether a packet needs nothing but its connection to be understood. */
static __always_inline bool is_simple(const struct transport *t)
{
	return t->part == PART_WHOLE && !is_icmp(t->protocol);
}

static __always_inline struct network *network_at(__u32 table)
{
	return bpf_map_lookup_elem(&networks, &table);
}

static __always_inline struct connection *connection_at(const struct connection_key *key)
{
	return bpf_map_lookup_elem(&connections, key);
}
