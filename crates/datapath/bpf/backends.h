/* SPDX-License-Identifier: GPL-2.0 */
/* The services of a network and those behind them, as the maps have them: whether a destination is a
 * service, and which backend a slot of it leads to. */
#pragma once

#include "flow.h"
#include "service_maps.h"

/* Where a packet to a service goes. */
struct translation {
	__u32 network; /* of the backend */
	struct address address;
	__be16 port;
	__u16 place;	 /* of the backend among those of its service */
	__u8 is_service; /* whether the rest means anything */
	__u8 is_kept;	 /* before the call: the backend of a connection that goes on is given */
	__u8 side;	 /* before the call: enum side */
	__u8 is_free;	 /* nobody has a connection between the client and the backend */
	__u8 is_masked;	 /* before the call: the client gets another port before the backend */
	__u8 reserved[3];
};

static __always_inline struct service *service_of(const struct flow *flow, __u8 side)
{
	const struct service_key key = {
		.network = flow->network,
		.address = flow->destination,
		.port = flow->transport.destination_port,
		.protocol = flow->transport.protocol,
		.side = side,
	};

	return bpf_map_lookup_elem(&services, &key);
}

static __always_inline __u32 mixed(__u32 hash, __u32 word)
{
	word *= 0xcc9e2d51;
	word = word << 15 | word >> 17;
	word *= 0x1b873593;
	hash ^= word;
	hash = hash << 13 | hash >> 19;
	return hash * 5 + 0xe6546b64;
}

/* The same for every packet of a connection, and different for any two of them. */
static __always_inline __u32 hash_of(const struct flow *flow, __u32 service)
{
	__u32 hash = service;

	for (int word = 0; word < 4; word++)
		hash = mixed(hash, flow->source.words[word]);
	hash = mixed(hash, flow->transport.source_port);
	hash ^= hash >> 16;
	hash *= 0x85ebca6b;
	hash ^= hash >> 13;
	hash *= 0xc2b2ae35;
	return hash ^ hash >> 16;
}

static __always_inline bool is_stream(const struct transport *t)
{
	return t->protocol == TCP_PROTOCOL || t->protocol == SCTP_PROTOCOL;
}

/* The backend at a place, or NULL where nobody has it. */
static __always_inline struct backend *backend_at(__u32 service, __u16 place)
{
	struct service_page at = { .service = service, .page = place / BACKENDS_PER_PAGE };
	struct backends *page = bpf_map_lookup_elem(&service_backends, &at);
	struct backend *backend;

	if (!page)
		return NULL;
	backend = &page->at[place % BACKENDS_PER_PAGE];
	return backend->port ? backend : NULL;
}

static __always_inline bool still_has(const struct service *service, const struct translation *to)
{
	struct backend *backend = backend_at(service->id, to->place);

	return backend && backend->port == to->port && backend->network == to->network &&
	       same_address(&backend->address, &to->address);
}

static __always_inline bool lead_to(const struct service *service, __u16 place,
				    struct translation *to)
{
	struct backend *backend = backend_at(service->id, place);

	if (!backend)
		return false;
	to->network = backend->network;
	to->address = backend->address;
	to->port = backend->port;
	to->place = place;
	return true;
}

/* The backend that a slot leads to. */
static __always_inline bool lead_by_slot(const struct service *service, __u32 slot,
					 struct translation *to)
{
	struct service_page at = { .service = service->id };
	struct slots *page;

	slot &= service->slots - 1;
	at.page = slot / SLOTS_PER_PAGE;
	page = bpf_map_lookup_elem(&service_slots, &at);
	return page && lead_to(service, page->backends[slot % SLOTS_PER_PAGE], to);
}
