/* SPDX-License-Identifier: GPL-2.0 */
/* Clients outside whose address is one of the network's own. Inside, that address means somebody else,
 * and an answer to it would stay there. So such a client wears a mask: its pod sees the gateway, with a
 * port that nobody else has before that pod.
 *
 * The rule: the node that the client came in by alone knows who wears which mask. Its connection, as the
 * network knows it, has the client in the places of another node and of a backend, which it needs for
 * nothing else; the way in has the port of the mask. Answers get the client back in send_outside.h. */
#pragma once

#include "icmp.h"
#include "masked.h"
#include "outside.h"
#include "work.h"

/* How many ports are tried for one that is free before the pod, and which. */
#define MASK_TRIES 64
#define MASK_FIRST_PORT 1024
#define MASK_PORTS 31744

struct mask_search {
	__u32 start;
	__u32 found;
};

/* Whether a client outside is somebody else inside: it has an address of the network's own, or the very
 * one that masks have. */
static __noinline bool needs_mask(__u32 network, struct address *client)
{
	struct address gateway = gateway_like(client);

	return reason_closed(network, client) != FINE || same_address(client, &gateway);
}

/* One port; says whether the search is over. */
static long try_mask(__u32 index, void *context)
{
	struct mask_search *search = context;
	struct work *work = work_at_hand();
	struct connection *known;

	if (!work)
		return 1;
	work->flow.transport.source_port =
		bpf_htons(MASK_FIRST_PORT + (search->start + index) % MASK_PORTS);
	name_connection(&work->key, &work->flow, is_higher(&work->flow));
	known = connection_at(&work->key);
	search->found = !known || is_over(known, work->key.protocol, work->now);
	return search->found;
}

/* Gives the sender of the packet, which goes to a pod, a mask that nobody else wears there. */
static __noinline verdict put_on_mask(struct work *work)
{
	struct mask_search search = { .start = bpf_get_prandom_u32() };

	hide_sender(work);
	bpf_loop(MASK_TRIES, try_mask, &search, 0);
	return search.found ? FINE : DROP_NAT_PORTS_SPENT;
}
