/* SPDX-License-Identifier: GPL-2.0 */
/* Which backend of a service of no tenant's namespace takes a packet: the one that took the connection's
 * others, else that of the client, else that of the connection's slot.
 *
 * The rule: no service leads to where nodes hear each other, whoever stands behind it. What goes on from
 * here may have a node's own address, and would be believed there, in every network. */
#pragma once

#include "plain_ways.h"

/* Where nodes hear each other. */
volatile const __u32 TUNNEL_PORT = 0;

/* How many backends are tried for one that is not taken. */
#define PLAIN_TRIES 4

static __always_inline bool is_at_tunnel(__u8 protocol, __be16 port)
{
	return protocol == UDP_PROTOCOL && port == bpf_htons((__u16)TUNNEL_PORT);
}

/* Whether the client speaks with the backend at hand (room->to) already, so that their answers could not be
 * told apart. Whoever includes this says how that is seen. */
static __always_inline bool is_taken(struct plain_room *room);

/* Whether the packet may go on to the backend at hand. */
static __always_inline bool may_go_there(struct plain_room *room)
{
	return !is_at_tunnel(room->flow.transport.protocol, room->to.port) && !is_taken(room);
}

/* A backend for a client that has none, by its slot or one further on. Unrolled, as in service.h. */
static __always_inline bool choose_anew(const struct service *service, struct plain_room *room)
{
	__u32 slot = hash_of(&room->flow, service->id);

#pragma clang loop unroll(full)
	for (__u32 attempt = 0; attempt < PLAIN_TRIES; attempt++) {
		if (lead_by_slot(service, slot + attempt * 0x9e3779b1, &room->to) &&
		    may_go_there(room))
			return true;
	}
	return false;
}

/* A client that was here before is led to the same backend, if it comes back in time. */
static __always_inline bool choose_again(const struct service *service, struct plain_room *room)
{
	struct affinity *known = bpf_map_lookup_elem(&service_affinity, &room->client);

	if (!known || passed(known->seen, room->now) > SECONDS((__u64)service->affinity))
		return false;
	return lead_to(service, known->place, &room->to) && room->to.port == known->port &&
	       same_address(&room->to.address, &known->address) && may_go_there(room);
}

static __noinline bool choose_together(struct service *service, struct plain_room *room)
{
	room->client.service = service->id;
	room->client.client = room->flow.source;
	if (!choose_again(service, room) && !choose_anew(service, room))
		return false;
	__builtin_memset(&room->known, 0, sizeof(room->known));
	room->known.seen = room->now;
	room->known.address = room->to.address;
	room->known.port = room->to.port;
	room->known.place = room->to.place;
	bpf_map_update_elem(&service_affinity, &room->client, &room->known, BPF_ANY);
	return true;
}

/* Whether the way that is known leads to a backend that the service still has. */
static __always_inline bool keeps(const struct service *service, const struct plain_way *known,
				  struct plain_room *room)
{
	room->to.network = PLAIN_NETWORK;
	room->to.address = known->destination;
	room->to.port = known->destination_port;
	room->to.place = known->place;
	return still_has(service, &room->to);
}

static __noinline bool choose(struct service *service, struct plain_way *known,
			      struct plain_room *room)
{
	if (known && keeps(service, known, room) && may_go_there(room))
		return true;
	if (!service->slots)
		return false;
	return service->affinity ? choose_together(service, room) : choose_anew(service, room);
}

static __always_inline bool is_opening_stream(const struct transport *t)
{
	return is_stream(t) && is_opening(t);
}

/* Whether a packet goes a known way without asking whether the service still has its backend. */
static __always_inline bool is_settled(const struct plain_way *known, const struct transport *t)
{
	return known->flags & PLAIN_ANSWER || (is_stream(t) && !is_opening(t));
}
