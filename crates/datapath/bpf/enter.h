/* SPDX-License-Identifier: GPL-2.0 */
/* The way in for who was not called: an address and port that leads to a service, at this node's own
 * address (a node port) or at one that the node answers for (a load balancer's).
 *
 * The rules: a port leads to a service of one network, and the client is known to its pods, and to
 * their policy, by its own address. Who has an address that is the network's own comes in with a mask
 * (mask.h). Where nobody takes a connection to the node's own address, the packet is left to the node,
 * whose stack refuses it at once. What comes to an address that is there for a network never reaches
 * the node's stack: it is served, refused or dropped here (refuse_outside.h). */
#pragma once

#include "mask.h"
#include "outside.h"
#include "service.h"
#include "work.h"

/* What find_entrance and lead_in say of a packet that is the node's. */
#define THE_NODES -1

static __always_inline struct held *held_at(const struct address *ip)
{
	const struct held_key key = { .address = *ip };

	return bpf_map_lookup_elem(&held_addresses, &key);
}

/* The network behind a port of the node's own address; NO_NETWORK where there is none. */
static __always_inline __u32 network_of_port(const struct flow *flow)
{
	const struct node_port_key at = { .address = flow->destination,
					  .port = flow->transport.destination_port,
					  .protocol = flow->transport.protocol };
	struct node_port *port = bpf_map_lookup_elem(&node_ports, &at);

	return port ? port->network : NO_NETWORK;
}

/* Whether the service lets its client in. */
static __noinline bool is_let_in(struct flow *flow)
{
	const struct source_key key = {
		.prefix = 8 * (sizeof(key.service) + sizeof(key.client)),
		.service = { .network = flow->network,
			     .address = flow->destination,
			     .port = flow->transport.destination_port,
			     .protocol = flow->transport.protocol,
			     .side = SIDE_OUTSIDE },
		.client = flow->source,
	};

	return bpf_map_lookup_elem(&service_sources, &key);
}

/* Whether the packet, to an address that is there for flow->network, is for a service, and its client
 * is let in. A verdict. */
static __noinline verdict check_held(struct work *work)
{
	struct flow *flow = &work->flow;

	if (flow->transport.part == PART_LATER || is_icmp(flow->transport.protocol) ||
	    !service_of(flow, SIDE_OUTSIDE))
		return DROP_NOT_SERVED;
	return is_let_in(flow) ? FINE : DROP_SOURCE_REFUSED;
}

/* Finds the service behind the packet's destination, and its network. A verdict, or THE_NODES. */
static __noinline int find_entrance(struct work *work)
{
	struct flow *flow = &work->flow;
	struct held *held = held_at(&flow->destination);
	struct entrance_key key = { .network = held ? held->network : network_of_port(flow) };
	struct entrance *entrance = bpf_map_lookup_elem(&entrances, &key);
	int judged = FINE;

	work->is_held = !!held;
	flow->network = key.network;
	if (!entrance || (!held && flow->transport.part == PART_LATER))
		return held ? DROP_NOT_SERVED : THE_NODES;
	flow->table = entrance->table;
	if (held)
		judged = check_held(work);
	work->is_masked = needs_mask(key.network, &flow->source);
	if (judged == FINE && work->is_masked && !flow->transport.source_port)
		judged = held ? DROP_SOURCE_REFUSED : THE_NODES;
	work->face.address = flow->destination;
	work->face.port = flow->transport.destination_port;
	if (!held)
		flow->destination = no_address(&flow->source);
	return judged;
}

/* Leads the packet to a backend of the service. A verdict, or THE_NODES. */
static __noinline int lead_in(struct work *work)
{
	struct flow *flow = &work->flow;

	work->to = (struct translation){ .side = SIDE_OUTSIDE, .is_masked = work->is_masked };
	if (choose_backend(flow, &work->to) != FINE || !work->to.is_service)
		return work->is_held ? DROP_NO_BACKEND : THE_NODES;
	flow->destination = work->to.address;
	flow->transport.destination_port = work->to.port;
	work->entered_at = work->to.place;
	work->to = (struct translation){};
	if (work->is_masked && put_on_mask(work) != FINE)
		return DROP_NAT_PORTS_SPENT;
	copy_flow(&work->out, flow);
	work->outside = OUTSIDE_SENDER;
	work->may_enter = 1;
	return FINE;
}

/* Whether the service by which datagrams came in still has the backend that they go to. Streams stay
 * with theirs. Asked once after each change of the network. */
static __noinline bool still_leads(struct work *work, struct connection *way)
{
	struct network *network = network_at(way->table);
	struct translation to = { .network = way->network,
				  .address = way->nat_address,
				  .port = way->nat_port,
				  .place = way->backend };
	struct service *service;
	__u32 generation;

	if (!(way->flags & CONNECTION_LEADS_ON) || is_stream(&work->flow.transport))
		return true;
	if (!network)
		return false;
	generation = *(volatile __u32 *)&network->generation;
	barrier();
	if (generation == way->generation)
		return true;
	copy_flow(&work->reverse, &work->wire);
	work->reverse.network = way->network;
	if (!held_at(&work->wire.destination))
		work->reverse.destination = no_address(&work->wire.source);
	service = service_of(&work->reverse, SIDE_OUTSIDE);
	if (!service || !still_has(service, &to))
		return false;
	way->generation = generation;
	return true;
}
