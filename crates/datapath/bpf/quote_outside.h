/* SPDX-License-Identifier: GPL-2.0 */
/* Errors that come from outside: any router may send one about a packet that left with a face.
 *
 * The rule: an error passes only where it quotes a packet of a live connection about which what was
 * decided holds. It reaches the pod as one about the packet that the pod sent. */
#pragma once

#include "icmp_error.h"
#include "outside.h"

/* Which packet of ours the error is about: into work->reverse, as the outside saw it. */
static __noinline bool read_quoted(struct __sk_buff *skb, struct work *work)
{
	struct flow *flow = &work->flow, *quoted = &work->reverse;
	verdict judged;

	*quoted = (struct flow){ .network = NO_NETWORK };
	judged = flow->transport.protocol == ICMP_PROTOCOL ? read_quote_ipv4(skb, flow, quoted) :
							     read_quote_ipv6(skb, flow, quoted);
	return judged == FINE && read_quoted_ports(skb, &quoted->transport) &&
	       same_address(&quoted->source, &flow->destination);
}

/* The error as the pod of the way in sees it, and what it quotes as the pod sent it. Whoever complains
 * about an answer to a mask (mask.h) is behind that mask. */
static __noinline void turn_quote(struct work *work, const struct connection *way)
{
	struct flow *out = &work->out, *quote = &work->quote;

	copy_flow(out, &work->wire);
	copy_flow(quote, &work->reverse);
	out->network = quote->network = way->network;
	out->destination = quote->source = way->nat_address;
	quote->transport.source_port = way->nat_port;
	if (!way->mask)
		return;
	out->source = quote->destination = gateway_like(&work->wire.source);
	quote->transport.destination_port = (__be16)way->mask;
}

/* Whether the connection of what is quoted, as the network knows it, is alive. */
static __noinline bool is_about_connection(struct work *work)
{
	const struct flow *quote = &work->quote;
	struct connection *known;

	name_connection(&work->key, quote, is_higher(quote));
	known = connection_at(&work->key);
	return known && known->flags & CONNECTION_OUTSIDE && is_settled(known, work) &&
	       !is_over(known, work->key.protocol, work->now);
}
