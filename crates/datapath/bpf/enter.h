/* SPDX-License-Identifier: GPL-2.0 */
/* The way in for who was not called: an address and port of this node that leads to a service.
 *
 * The rules: a port leads to a service of one network, and the client is known to its pods, and to
 * their policy, by its own address. Who has an address that is the network's own cannot come in: its
 * answers would stay inside. Where nobody takes the connection, the packet is left to the node, whose
 * stack refuses it at once. */
#pragma once

#include "outside.h"
#include "service.h"
#include "work.h"

/* Where services are that the outside reaches: at the address that is none. */
static __always_inline struct address no_address(const struct address *like)
{
	return is_mapped(like) ? ipv4_mapped(0) : (struct address){};
}

/* Finds the network behind the packet's destination. */
static __noinline bool find_entrance(struct work *work)
{
	struct flow *flow = &work->flow;
	struct node_port_key at = { .address = flow->destination,
				    .port = flow->transport.destination_port,
				    .protocol = flow->transport.protocol };
	struct node_port *port = bpf_map_lookup_elem(&node_ports, &at);
	struct entrance_key key;
	struct entrance *entrance;

	if (!port || flow->transport.part == PART_LATER)
		return false;
	key = (struct entrance_key){ .network = port->network };
	entrance = bpf_map_lookup_elem(&entrances, &key);
	if (!entrance || reason_closed(key.network, &flow->source) != FINE)
		return false;
	flow->network = key.network;
	flow->table = entrance->table;
	work->face.address = flow->destination;
	work->face.port = flow->transport.destination_port;
	return true;
}

/* Leads the packet to a backend of the service; says whether one takes it. */
static __noinline bool lead_in(struct work *work)
{
	struct flow *flow = &work->flow;

	flow->destination = no_address(&flow->source);
	work->to = (struct translation){};
	if (choose_backend(flow, &work->to) != FINE || !work->to.is_service)
		return false;
	flow->destination = work->to.address;
	flow->transport.destination_port = work->to.port;
	work->to = (struct translation){};
	copy_flow(&work->out, flow);
	work->outside = OUTSIDE_SENDER;
	work->may_enter = 1;
	return true;
}
