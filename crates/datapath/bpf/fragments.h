/* SPDX-License-Identifier: GPL-2.0 */
/* Datagrams in fragments. Only the first fragment has the ports; it leaves them in an entry, by
 * which the later ones find their connection. A later one that comes before the first passes as
 * far as a packet in the middle of an unknown connection may. */
#pragma once

#include "connection.h"

/* IPv4 numbers the datagrams of each protocol apart, and IPv6 says the protocol only in the
 * first. */
static __always_inline struct connection_key datagram_of(const struct flow *flow)
{
	bool ipv6 = !is_mapped(&flow->source);
	bool from_high = is_higher(flow);
	struct connection_key key = key_of(flow, from_high);

	key.low_port = (__be16)flow->transport.id;
	key.high_port = (__be16)(flow->transport.id >> 16);
	key.kind = from_high ? KIND_FRAGMENTS_OF_HIGH : KIND_FRAGMENTS_OF_LOW;
	if (ipv6)
		key.protocol = 0;
	return key;
}

static __noinline verdict remember_first(void *table, struct flow *flow, __u64 now)
{
	struct transport *t = &flow->transport;
	struct connection entry = {
		.opened = now,
		.last_seen = now,
		.source_port = t->source_port,
		.destination_port = t->destination_port,
		.extent = t->size,
		.protocol = t->protocol,
	};
	struct connection_key key;

	/* The ports take no part in the order of both ends of a datagram. */
	t->source_port = t->destination_port = 0;
	key = datagram_of(flow);
	return bpf_map_update_elem(table, &key, &entry, BPF_ANY) ? DROP_CONNECTIONS_EXHAUSTED : FINE;
}

static __noinline verdict judge_later(void *table, struct flow *flow, __u64 now)
{
	struct connection_key key = datagram_of(flow);
	struct connection *first = bpf_map_lookup_elem(table, &key);
	struct connection *known;

	if (!first || first->opened < flow->since || passed(first->last_seen, now) > FRAGMENTS_LAST)
		return may_pick_up(flow) ? FINE : DROP_NO_CONNECTION;
	if (flow->transport.offset < first->extent)
		return DROP_OVERLAPPING_FRAGMENT;
	flow->transport.source_port = first->source_port;
	flow->transport.destination_port = first->destination_port;
	flow->transport.protocol = first->protocol;
	key = key_of(flow, is_higher(flow));
	known = bpf_map_lookup_elem(table, &key);
	if (known && is_alive(known, key.protocol, flow->since, now))
		known->last_seen = now;
	else if (!may_pick_up(flow))
		return DROP_NO_CONNECTION;
	return FINE;
}
