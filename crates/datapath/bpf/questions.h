/* SPDX-License-Identifier: GPL-2.0 */
/* How many questions a pod puts to the resolvers of its network, and how many datagrams it sends to
 * services of the cluster's own, at each of which all pods of the node share one queue.
 *
 * The rule: an interface that sends more than its budget spends nothing of what others have, not even
 * their time: what is refused is only read, and no one waits for another's turn. */
#pragma once

#include "constants.h"
#include "transport.h"
#include "work.h"

/* So much of its time an interface may have spent beforehand: as many questions at once as in half a
 * second. */
#define QUESTIONS_AHEAD 500000000

/* One datagram to a service in so long, and so much of it beforehand: ten thousand in a second, a thousand
 * at once. */
#define DATAGRAM_NANOS 100000
#define DATAGRAMS_AHEAD 100000000

/* Until when each interface has spent its time, by its slot: nanoseconds of the monotonic clock. It is
 * not pinned: programs that are loaded anew begin with a full budget for all, and so does whoever gets
 * the slot of another, half a second later. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_INTERFACES);
	__type(key, __u32);
	__type(value, __u64);
} questions SEC(".maps");

/* The same for datagrams: who sends many can still ask. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_INTERFACES);
	__type(key, __u32);
	__type(value, __u64);
} datagrams SEC(".maps");

/* How many a packet stands for. One that the kernel has yet to cut may be many datagrams. Of TCP, only
 * what opens a connection counts: the rest is in nobody's way. */
static __always_inline __u32 questions_in(const struct __sk_buff *skb, const struct transport *t)
{
	if (t->protocol == TCP_PROTOCOL)
		return (t->signs & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	return skb->gso_size ? t->size / skb->gso_size + 1 : 1;
}

/* Takes a price from a budget; says whether it was left in it. CPUs that begin anew at one moment may
 * forget a packet of each other, and no more. */
static __always_inline bool spend(__u64 *spent, __u64 now, __u64 ahead, __u64 price)
{
	__u64 until;

	if (!spent)
		return false;
	until = *(volatile __u64 *)spent;
	if (until > now + ahead)
		return false;
	if (until < now)
		*(volatile __u64 *)spent = now;
	__sync_fetch_and_add(spent, price);
	return true;
}

/* Takes so many questions from the budget of an interface. */
static __noinline bool spend_questions(__u32 slot, __u64 now, __u32 count)
{
	__u64 *spent = bpf_map_lookup_elem(&questions, &slot);

	return spend(spent, now, QUESTIONS_AHEAD, count * QUESTION_NANOS);
}

/* The same for datagrams. */
static __noinline bool spend_datagrams(__u32 slot, __u64 now, __u32 count)
{
	__u64 *spent = bpf_map_lookup_elem(&datagrams, &slot);

	return spend(spent, now, DATAGRAMS_AHEAD, (__u64)count * DATAGRAM_NANOS);
}
