/* SPDX-License-Identifier: GPL-2.0 */
/* The share of a network in the connections of the node. Its connections stand in a ring in the
 * order in which they came; when the ring is full, the next one takes the place of the oldest.
 *
 * The rule: a network pushes out its own connections and nobody else's, those that were never
 * answered before those that were. */
#pragma once

#include "connection.h"

#define CHANCES 8

/* Whether the connection in a place of the ring may go. */
static __always_inline bool may_go(const struct connection *oldest, __u8 protocol, __u64 now)
{
	return oldest->state != STATE_ESTABLISHED || is_over(oldest, protocol, now);
}

/* Takes the place of who stands at `at`; an established one stays unless it `must` go. */
static __always_inline bool take_place(const struct turn_key *at, const struct connection_key *key,
				       __u64 now, bool must)
{
	struct connection_key *oldest_key = bpf_map_lookup_elem(&turns, at);
	struct connection *oldest;

	if (oldest_key) {
		oldest = bpf_map_lookup_elem(&connections, oldest_key);
		if (oldest && oldest->turn == at->turn && oldest->table == at->table) {
			if (!must && !may_go(oldest, oldest_key->protocol, now))
				return false;
			bpf_map_delete_elem(&connections, oldest_key);
		}
	}
	return !bpf_map_update_elem(&turns, at, key, BPF_ANY);
}

/* Gives a new connection its turn, or nothing where the network has no place here. */
static __always_inline bool take_turn(__u32 table, const struct connection_key *key, __u32 *turn,
				      __u64 now)
{
	__u32 *ring = bpf_map_lookup_elem(&rings, &table);
	struct network *network = network_at(table);
	struct turn_key at = { .table = table };

	if (!ring || !network || !network->share)
		return false;
#pragma clang loop unroll(disable)
	for (int chance = 1; chance <= CHANCES; chance++) {
		at.turn = __sync_fetch_and_add(ring, 1) % network->share;
		*turn = at.turn;
		if (take_place(&at, key, now, chance == CHANCES))
			return true;
	}
	return false;
}
