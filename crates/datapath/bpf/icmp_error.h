/* SPDX-License-Identifier: GPL-2.0 */
/* ICMP between pods: echoes, which are connections, and errors, which speak of one.
 *
 * The rule: an error passes only from the one end of a live connection to the other, and only while
 * what was decided about the connection holds. An error is not asked about by itself: one that came
 * after a change of the network must wait for the connection's own next packet. */
#pragma once

#include "quote.h"
#include "work.h"

#define ICMP_REDIRECT 5

/* Reads what the error at hand quotes: as it came, and as it goes on unless somebody says otherwise. */
static __noinline bool read_error(struct __sk_buff *skb, struct work *work)
{
	struct flow *flow = &work->wire, *quoted = &work->reverse;
	verdict judged;

	*quoted = (struct flow){ .network = flow->network };
	judged = flow->transport.protocol == ICMP_PROTOCOL ? read_quote_ipv4(skb, flow, quoted) :
							     read_quote_ipv6(skb, flow, quoted);
	if (judged != FINE || !read_quoted_ports(skb, &quoted->transport))
		return false;
	copy_flow(&work->quote, quoted);
	return true;
}

/* An error about a packet to a backend is one about a packet to the service, for its client. */
static __always_inline void speak_for_service(struct work *work, const struct connection *known)
{
	copy_flow(&work->out, &work->wire);
	work->out.source = work->quote.destination = known->nat_address;
	work->quote.transport.destination_port = known->nat_port;
	work->is_translated = 1;
}

/* What leads the client at hand to the backend whose answer it complains of. */
static __always_inline struct connection *lead_of_quote(struct work *work)
{
	const struct flow *quoted = &work->quote;
	struct connection *lead;

	if (!same_address(&quoted->source, &work->wire.destination) ||
	    !same_address(&quoted->destination, &work->wire.source))
		return NULL;
	name_connection(&work->key, quoted, is_higher(quoted));
	lead = connection_at(&work->key);
	return lead && lead->flags & CONNECTION_LEADS_ON && !(lead->flags & CONNECTION_ACROSS) &&
			       !is_by_sender(lead, is_higher(quoted)) &&
			       !is_over(lead, work->key.protocol, work->now) ?
		       lead :
		       NULL;
}

/* An error of a client about an answer of a service becomes one about an answer of its backend. */
static __noinline void speak_to_backend(struct __sk_buff *skb, struct work *work)
{
	struct connection *lead = read_error(skb, work) ? lead_of_quote(work) : NULL;

	if (!lead)
		return;
	work->flow.destination = work->quote.source = lead->nat_address;
	work->quote.transport.source_port = lead->nat_port;
	copy_flow(&work->out, &work->wire);
	work->out.destination = lead->nat_address;
	work->is_translated = 1;
}

/* An error speaks of a packet that its receiver sent, and comes from where that packet went. One from
 * outside may be a router's: it came from the node that speaks for the other end. */
static __noinline verdict check_error(struct __sk_buff *skb, struct work *work, __u64 since)
{
	struct flow *flow = &work->flow, *quoted = &work->quote;
	struct connection *known;

	/* One to a service was read when the service was asked. */
	if (!work->is_translated && !read_error(skb, work))
		return DROP_UNRELATED_ICMP;
	if (!same_address(&quoted->source, &flow->destination) ||
	    (work->outside != OUTSIDE_SENDER &&
	     !same_address(&quoted->destination, &flow->source)))
		return DROP_UNRELATED_ICMP;
	name_connection(&work->key, quoted, is_higher(quoted));
	known = connection_at(&work->key);
	if (!known || known->opened < since || !is_settled(known, work) ||
	    is_over(known, work->key.protocol, work->now))
		return DROP_UNRELATED_ICMP;
	if (known->flags & CONNECTION_TRANSLATED && is_by_sender(known, is_higher(quoted)))
		speak_for_service(work, known);
	return FINE;
}

static __always_inline bool is_echo(const struct transport *t)
{
	if (t->protocol == ICMP_PROTOCOL)
		return t->signs == ICMP_ECHO || t->signs == ICMP_ECHO_REPLY;
	return t->signs == ICMPV6_ECHO || t->signs == ICMPV6_ECHO_REPLY;
}

/* What is neither an echo nor an error, or comes from who must not send it. */
static __always_inline verdict check_kind(const struct transport *t)
{
	if (t->protocol == ICMP_PROTOCOL && t->signs == ICMP_REDIRECT)
		return DROP_ICMP_REDIRECT;
	return is_echo(t) ? FINE : DROP_UNRELATED_ICMP;
}
