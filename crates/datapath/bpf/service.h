/* SPDX-License-Identifier: GPL-2.0 */
/* Services: whether the destination of a packet is one, and which backend takes it. The first stage
 * of the slow path (decide.h), asked on the client's node alone.
 *
 * The rules: a stream stays with its backend for as long as the backend's pod is there. Everything
 * else stays only while the service still has that backend. Whoever is new gets the backend of the
 * slot that its ends lead to, unless the service keeps its clients together. Two connections never
 * have the same ends: where a backend would make them so, another takes its place.
 *
 * As in policy.h, the kernel checks choose_backend by itself. */
#pragma once

#include "backends.h"
#include "connection.h"

/* How many backends are tried for one that the client does not speak with from the same port. */
#define SERVICE_TRIES 4

/* Room for what the stack is too small for, on each CPU; as in work.h. */
struct service_room {
	__u64 now;
	struct connection_key connection;
	struct affinity_key client;
	struct affinity known;
	struct address vip;
	__u32 spare; /* a slot whose backend the client may speak with instead of as before */
	__u8 has_spare;
	__u8 gives_way; /* whether the connection that was found last does */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct service_room);
} service_rooms SEC(".maps");

/* Whether a connection gives way to datagrams of its own opener that go another way to the other end:
 * what it said last tells where it waits for the answer. */
static __always_inline bool gives_way(const struct connection *known, const struct transport *t,
				      bool from_high)
{
	return t->protocol == UDP_PROTOCOL && t->part != PART_LATER &&
	       is_by_sender(known, from_high) &&
	       !(known->flags & (CONNECTION_OUTSIDE | CONNECTION_ACROSS | CONNECTION_LEADS_ON));
}

/* Whether the client speaks with the backend already, from the same port and not through this
 * service: their answers could not be told apart. A backend of another network has nobody's own port
 * before it, and nobody who wears a mask (mask.h) has its own. */
static __always_inline bool is_taken(struct flow *flow, struct translation *to,
				     struct service_room *room)
{
	const __be16 port = flow->transport.destination_port;
	struct connection *known;
	bool from_high;

	if (to->network != flow->network || to->is_masked)
		return false;
	room->vip = flow->destination;
	flow->destination = to->address;
	flow->transport.destination_port = to->port;
	from_high = is_higher(flow);
	name_connection(&room->connection, flow, from_high);
	flow->destination = room->vip;
	flow->transport.destination_port = port;
	known = connection_at(&room->connection);
	to->is_free = !known;
	if (!known || known->state == STATE_CLOSED ||
	    is_over(known, flow->transport.protocol, room->now))
		return false;
	room->gives_way = gives_way(known, &flow->transport, from_high);
	return !(known->flags & (CONNECTION_TRANSLATED | CONNECTION_OUTSIDE)) ||
	       known->nat_port != port || !same_address(&known->nat_address, &room->vip);
}

/* A backend for a client that has none, by its slot or one further on; where it speaks with all of them
 * from the same port, one that it may speak with through the service instead. Unrolled: kernels before
 * 6.4 take no loop that the compiler closes by running into its start. */
static __always_inline bool lead_anew(const struct service *service, struct flow *flow,
				      struct translation *to, struct service_room *room)
{
	__u32 slot = hash_of(flow, service->id);

	room->has_spare = 0;
#pragma clang loop unroll(full)
	for (__u32 attempt = 0; attempt < SERVICE_TRIES; attempt++) {
		/* An odd step leads past neighbours that are the same backend's. */
		const __u32 at = slot + attempt * 0x9e3779b1;

		if (!lead_by_slot(service, at, to))
			continue;
		if (!is_taken(flow, to, room))
			return true;
		if (room->gives_way) {
			room->spare = at;
			room->has_spare = 1;
		}
	}
	return room->has_spare && lead_by_slot(service, room->spare, to);
}

/* A client that was here before is led to the same backend, if it comes back in time. */
static __always_inline bool lead_again(const struct service *service, struct flow *flow,
				       struct translation *to, struct service_room *room)
{
	struct affinity *known = bpf_map_lookup_elem(&service_affinity, &room->client);

	if (!known || passed(known->seen, room->now) > SECONDS((__u64)service->affinity))
		return false;
	return lead_to(service, known->place, to) && to->port == known->port &&
	       same_address(&to->address, &known->address) && !is_taken(flow, to, room);
}

static __always_inline bool lead_together(const struct service *service, struct flow *flow,
					  struct translation *to, struct service_room *room)
{
	room->client.service = service->id;
	room->client.client = flow->source;
	if (!lead_again(service, flow, to, room) && !lead_anew(service, flow, to, room))
		return false;
	room->known.seen = room->now;
	room->known.address = to->address;
	room->known.port = to->port;
	room->known.place = to->place;
	bpf_map_update_elem(&service_affinity, &room->client, &room->known, BPF_ANY);
	return true;
}

/* A stream goes on until its backend's pod is gone, whatever has become of the service. */
static __always_inline verdict keep_stream(struct translation *to)
{
	const struct endpoint_key key = { .network = to->network, .address = to->address };

	to->is_service = 1;
	return bpf_map_lookup_elem(&endpoints, &key) ? FINE : DROP_NO_BACKEND;
}

/* `flow` goes from a client to what may be a service of flow->network. Fills in `to`; with
 * `is_kept`, an answer other than the backend given ends the connection. A verdict: FINE also where
 * it is no service; DROP_NO_BACKEND where nobody can take it, and then the client is refused at
 * once (refuse_service). */
__noinline int choose_backend(struct flow *flow, struct translation *to)
{
	__u32 first = 0;
	struct service_room *room = bpf_map_lookup_elem(&service_rooms, &first);
	struct service *service;

	if (!flow || !to || !room)
		return DROP_KERNEL_REFUSED;
	to->is_service = 0;
	to->is_free = 0;
	if (to->is_kept && is_stream(&flow->transport) && !is_opening(&flow->transport))
		return keep_stream(to);
	service = service_of(flow, to->side);
	if (!service)
		return FINE;
	to->is_service = 1;
	if (to->is_kept && still_has(service, to))
		return FINE;
	to->is_kept = 0;
	if (!service->slots)
		return DROP_NO_BACKEND;
	room->now = bpf_ktime_get_coarse_ns();
	if (service->affinity ? lead_together(service, flow, to, room) :
				lead_anew(service, flow, to, room))
		return FINE;
	return DROP_NO_BACKEND;
}
