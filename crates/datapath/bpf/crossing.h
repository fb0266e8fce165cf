/* SPDX-License-Identifier: GPL-2.0 */
/* A connection between two networks of one tenant, as the slow path (decide.h) knows it: who its client
 * is, what it is led to, and what its entries say. How packets pass is in across.h.
 *
 * The rule: a service alone leads from one network into another, and what stands behind a service was
 * written by the agent, which puts nobody there but pods of the service's own tenant. Policy is asked
 * about both ends as they are, each in its own network.
 *
 * Such a connection has up to three entries:
 *   the client's half   on its node, where the backend is on another: an ordinary connection between the
 *                       client and the service's address, which is at the backend's node
 *   what leads on       on the backend's node, by the same ends: to the backend, and by which port of
 *                       the service's address the client is known there
 *   the backend's half  on the same node, in the backend's network: between that port of the service's
 *                       address and the backend, with the client */
#pragma once

#include "ends.h"
#include "service.h"
#include "work.h"

#define LEADS_ACROSS (CONNECTION_LEADS_ON | CONNECTION_ACROSS)

/* The packet at hand goes from its client to a service. */
static __always_inline void note_client(struct work *work, enum across across)
{
	work->across = across;
	work->client_network = work->flow.network;
	work->client = work->flow.source;
	work->client_port = work->flow.transport.source_port;
	work->service_port = work->flow.transport.destination_port;
}

/* Whether the connection that is known is that of the client at hand. What it is led to may change
 * where the backend is on another node. */
static __always_inline bool is_same_crossing(const struct connection *known,
					     const struct work *work)
{
	if (!(known->flags & CONNECTION_ACROSS) || !work->across)
		return false;
	if (work->across == ACROSS_THERE)
		return !(known->flags & OF_SERVICE);
	return known->flags & CONNECTION_TRANSLATED && known->network == work->client_network &&
	       known->nat_port == work->client_port && known->near_port == work->service_port &&
	       same_address(&known->nat_address, &work->client);
}

/* The backend that a client has in another network. The backend's half is no way there. */
static __always_inline void recall_across(struct work *work, const struct connection *known)
{
	if (known->flags & CONNECTION_TRANSLATED)
		return;
	work->to.network = known->network;
	work->to.address = known->nat_address;
	work->to.port = known->nat_port;
	work->to.place = known->chosen;
	work->to.is_kept = 1;
}

/* The backend is in another network: the packet stays as it is for now, and goes to who has the
 * backend. */
static __noinline verdict lead_across(struct work *work)
{
	struct endpoint *to = endpoint_of(work->to.network, &work->to.address);

	work->to.is_service = 0;
	if (!to)
		return DROP_NO_BACKEND;
	note_client(work, to->ifindex ? ACROSS_HERE : ACROSS_THERE);
	note_end(&work->destination, to);
	return FINE;
}

/* What policy is asked: about the backend by its own port, not about the service. */
static __always_inline void pose_across(struct work *work)
{
	struct question *question = &work->question;

	question->network = work->client_network;
	question->opener = work->client;
	question->other_network = work->to.network;
	question->other = work->to.address;
	question->port = work->to.port;
}

/* What the half of a connection says of the other one. */
static __always_inline void note_crossing(struct connection *entry, const struct work *work)
{
	bool here = work->across == ACROSS_HERE;

	entry->flags |= here ? CONNECTION_ACROSS | CONNECTION_TRANSLATED : CONNECTION_ACROSS;
	entry->network = here ? work->client_network : work->to.network;
	entry->nat_address = here ? work->client : work->to.address;
	entry->nat_port = here ? work->client_port : work->to.port;
	entry->near_port = here ? work->service_port : 0;
	entry->chosen = here ? 0 : work->to.place;
}

/* Makes of work->fresh, which leads to a backend of this node, what leads into its network. */
static __always_inline void lead_into_network(struct work *work)
{
	struct connection *fresh = &work->fresh;

	fresh->flags = (fresh->flags & ~CONNECTION_TRANSLATED) | CONNECTION_ACROSS;
	fresh->network = work->to.network;
	fresh->chosen = work->to.place;
	fresh->near_port = work->flow.transport.source_port;
}
