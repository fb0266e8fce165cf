/* SPDX-License-Identifier: GPL-2.0 */
/* Doors to the outside that their owner opened to the pods of another network: a port of a load
 * balancer's address, or a port of every node.
 *
 * The rules: nobody asks here but for an address that is closed, and what is not found stays so. Exactly
 * the address, the protocol and the port are open, to the network that stands before them. Nothing opens
 * the port where nodes hear each other: its packets are believed by their sender's address. Where this
 * node answers for the address itself, the packet loops (loop.h). */
#pragma once

#include "constants.h"
#include "loop.h"
#include "outside.h"
#include "work.h"

static __always_inline bool is_tunnel_port(const struct transport *t)
{
	return t->protocol == UDP_PROTOCOL && t->destination_port == bpf_htons(OVERLAY_PORT);
}

/* A port that is open to the network of `flow`, at an address. */
static __noinline struct opening *opening_at(struct flow *flow, struct address *ip)
{
	const struct opening_key key = { .network = flow->network,
					 .address = *ip,
					 .port = flow->transport.destination_port,
					 .protocol = flow->transport.protocol };

	return bpf_map_lookup_elem(&openings, &key);
}

/* A node's address, if node ports are reached there. */
static __noinline struct opening *node_at(struct address *ip)
{
	const struct opening_key key = { .network = NO_NETWORK, .address = *ip };

	return bpf_map_lookup_elem(&openings, &key);
}

/* Whether the packet, to an address that is closed, is for a port that is open. Then it has its way. */
static __noinline bool is_opened(struct work *work)
{
	struct flow *flow = &work->flow;
	struct opening *opening = opening_at(flow, &flow->destination);
	struct address anywhere = no_address(&flow->destination);

	if (!opening && !is_tunnel_port(&flow->transport) && opening_at(flow, &anywhere))
		opening = node_at(&flow->destination);
	if (!opening)
		return false;
	if (opening->is_here && work->destination.place.ifindex) {
		work->destination.place.ifindex = LOOP_IFINDEX;
		work->loops = 1;
	}
	return true;
}
