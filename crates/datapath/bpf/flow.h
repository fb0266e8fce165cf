/* SPDX-License-Identifier: GPL-2.0 */
/* A packet on its way between two ends of a network, and the key of the connection it is of. */
#pragma once

#include "transport.h"

struct flow {
	__u32 network;
	__u32 table; /* of the network in `networks` */
	struct address source;
	struct address destination;
	struct transport transport;
} __attribute__((aligned(8)));

/* Word by word: the compiler would load the whole of it first, and has no registers for that. */
static __always_inline void copy_flow(struct flow *to, const struct flow *from)
{
	const __u64 *source = (const void *)from;
	__u64 *target = (void *)to;

#pragma clang loop unroll(full)
	for (__u32 word = 0; word < sizeof(*to) / sizeof(*target); word++) {
		target[word] = source[word];
		barrier();
	}
}

/* Any order will do, so that the words that differ most are compared first. */
static __always_inline bool is_higher(const struct flow *flow)
{
	const __be32 *source = flow->source.words, *destination = flow->destination.words;

	if (source[3] != destination[3])
		return source[3] > destination[3];
	if (source[2] != destination[2])
		return source[2] > destination[2];
	if (source[1] != destination[1])
		return source[1] > destination[1];
	if (source[0] != destination[0])
		return source[0] > destination[0];
	return flow->transport.source_port > flow->transport.destination_port;
}

/* Writes the key, every byte of it. */
static __always_inline void name_connection(struct connection_key *key, const struct flow *flow,
					    bool from_high)
{
	const struct transport *t = &flow->transport;

	key->network = flow->network;
	key->low = from_high ? flow->destination : flow->source;
	key->high = from_high ? flow->source : flow->destination;
	key->low_port = from_high ? t->destination_port : t->source_port;
	key->high_port = from_high ? t->source_port : t->destination_port;
	key->protocol = t->protocol;
	key->kind = KIND_CONNECTION;
	key->reserved[0] = key->reserved[1] = 0;
}
