/* SPDX-License-Identifier: GPL-2.0 */
/* The share of a network in the connections of the node. Its connections stand in a ring in the
 * order in which they came; when the ring is full, the next one takes the place of the oldest. The
 * places lie in pages, so that most connections take one without anything being allocated for it.
 *
 * The rule: a network pushes out its own connections and nobody else's, those that were never
 * answered before those that were. */
#pragma once

#include "connection.h"

#define CHANCES 8

/* What a new page is made of. Nobody writes here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct turns);
} empty_turns SEC(".maps");

/* Whoever makes the same page at the same moment makes the same one. */
static __noinline struct turns *new_page(const struct turns_key *at)
{
	__u32 first = 0;
	struct turns *empty = bpf_map_lookup_elem(&empty_turns, &first);

	if (empty)
		bpf_map_update_elem(&turns, at, empty, BPF_NOEXIST);
	return bpf_map_lookup_elem(&turns, at);
}

/* A place of the ring, or NULL where there is no memory for it. */
static __always_inline struct connection_key *place_at(__u32 table, __u32 turn)
{
	struct turns_key at = { .table = table, .page = turn / TURNS_PER_PAGE };
	struct turns *page = bpf_map_lookup_elem(&turns, &at);

	if (!page)
		page = new_page(&at);
	return page ? &page->at[turn % TURNS_PER_PAGE] : NULL;
}

/* Whether the connection in a place of the ring may go. */
static __always_inline bool may_go(const struct connection *oldest, __u8 protocol, __u64 now)
{
	return oldest->state != STATE_ESTABLISHED || is_over(oldest, protocol, now);
}

/* Takes a place for `key`; an established connection that stands there stays unless it `must` go.
 * The key that is read may be half of another one's, if another CPU takes the same place at the same
 * moment: then nobody is found by it. */
static __always_inline bool take_place(__u32 table, __u32 turn, const struct connection_key *key,
				       __u64 now, bool must)
{
	struct connection_key *place = place_at(table, turn);
	struct connection *oldest;

	if (!place)
		return false;
	oldest = is_none(&place->high) ? NULL : connection_at(place);
	if (oldest && oldest->turn == turn && oldest->table == table) {
		if (!must && !may_go(oldest, place->protocol, now))
			return false;
		bpf_map_delete_elem(&connections, place);
	}
	*place = *key;
	return true;
}

/* Gives a new connection its turn, or nothing where the network has no place here. */
static __always_inline bool take_turn(__u32 table, const struct connection_key *key, __u32 *turn,
				      __u64 now)
{
	__u32 *ring = bpf_map_lookup_elem(&rings, &table);
	struct network *network = network_at(table);
	__u32 next;

	if (!ring || !network || !network->share)
		return false;
#pragma clang loop unroll(disable)
	for (int chance = 1; chance <= CHANCES; chance++) {
		next = __sync_fetch_and_add(ring, 1) % network->share;
		*turn = next;
		if (take_place(table, next, key, now, chance == CHANCES))
			return true;
	}
	return false;
}
