/* SPDX-License-Identifier: GPL-2.0 */
/* Datagrams in fragments. Only the first fragment has the ports; it leaves them in an entry, by
 * which the later ones find their connection. A later one that comes before the first passes as
 * far as a packet in the middle of an unknown connection may.
 *
 * Where several senders go on as one, their datagrams may have the same number, and parts of one would
 * be taken for those of another. Such a datagram gets another number, which nobody else's has. */
#pragma once

#include "ring.h"
#include "work.h"

#define FRAGMENTS_LAST SECONDS(30)
/* How many numbers are tried for one that is free. */
#define NUMBER_TRIES 64

/* IPv4 numbers the datagrams of each protocol apart, and IPv6 says the protocol only in the
 * first. */
static __always_inline void name_datagram(struct connection_key *key, const struct flow *flow)
{
	bool from_high = is_higher(flow);

	name_connection(key, flow, from_high);
	key->low_port = (__be16)flow->transport.id;
	key->high_port = (__be16)(flow->transport.id >> 16);
	key->kind = from_high ? KIND_FRAGMENTS_OF_HIGH : KIND_FRAGMENTS_OF_LOW;
	if (!is_mapped(&flow->source))
		key->protocol = 0;
}

/* The first fragment has passed. The entry stands in the ring as a connection does. */
static __noinline verdict remember_first(struct work *work)
{
	struct connection *entry = &work->fresh;
	struct transport *t = &work->flow.transport;

	__builtin_memset(entry, 0, sizeof(*entry));
	entry->opened = entry->last_seen = work->now;
	entry->table = work->flow.table;
	entry->first.source_port = t->source_port;
	entry->first.destination_port = t->destination_port;
	entry->first.extent = t->size;
	entry->first.protocol = t->protocol;
	entry->first.number = work->number;
	/* The ports take no part in the order of both ends of a datagram. */
	t->source_port = t->destination_port = 0;
	name_datagram(&work->key, &work->flow);
	return put_in(work, false);
}

/* Gives a later fragment the ports of its first, and says whether it is known. */
static __noinline bool find_first(struct flow *flow, struct work *work, __u64 since)
{
	struct connection *entry;

	name_datagram(&work->key, flow);
	entry = connection_at(&work->key);
	if (!entry || entry->opened < since || passed(entry->last_seen, work->now) > FRAGMENTS_LAST)
		return false;
	flow->transport.source_port = entry->first.source_port;
	flow->transport.destination_port = entry->first.destination_port;
	flow->transport.protocol = entry->first.protocol;
	work->extent = entry->first.extent;
	work->number = entry->first.number;
	return true;
}

/* The later parts come as this first one did, and pass in the share of who gets them. */
static __noinline verdict remember_as_it_came(struct work *work)
{
	work->wire.table = work->out.table;
	copy_flow(&work->flow, &work->wire);
	return remember_first(work);
}

struct number_search {
	__u32 start;
	__u32 found;
};

/* One number; says whether the search is over. Zero is none. */
static long try_number(__u32 index, void *context)
{
	struct number_search *search = context;
	struct work *work = work_at_hand();
	__u32 number = search->start + index;
	struct connection *entry;

	if (!work)
		return 1;
	if (is_mapped(&work->flow.source))
		number &= 0xffff;
	work->flow.transport.id = number;
	name_datagram(&work->key, &work->flow);
	entry = connection_at(&work->key);
	search->found = number &&
			(!entry || passed(entry->last_seen, work->now) > FRAGMENTS_LAST);
	return search->found;
}

/* Gives the part at hand, which has the ends that it goes on with, the number of its datagram there: a
 * first one a new one, a later one that of its first, which was found. */
static __noinline verdict take_number(struct work *work)
{
	struct number_search search = { .start = bpf_get_prandom_u32() };

	if (work->flow.transport.part == PART_FIRST) {
		bpf_loop(NUMBER_TRIES, try_number, &search, 0);
		work->number = search.found ? work->flow.transport.id : 0;
	}
	work->flow.transport.id = work->number;
	return work->number ? FINE : DROP_NAT_PORTS_SPENT;
}
