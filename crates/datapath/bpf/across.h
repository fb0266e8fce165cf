/* SPDX-License-Identifier: GPL-2.0 */
/* Packets that a service leads from one network of a tenant into another (crossing.h), and back.
 *
 * The client's node sends them on as they are, with the number of the client's network, to a node that
 * has a backend; if that is itself, all happens there. The backend's node chooses who of its own pods
 * takes the connection, and keeps both halves of the translation: the backend sees the service's address
 * as its client, with a port that nobody else has before it. That address is of no pod's, whichever
 * network it is seen from, while the client's own may be somebody else's there.
 *
 * The rule: what comes in by the tunnel is believed as everywhere, only from the node that the client
 * lives on, and what goes back goes to who opened the connection and to nobody else. */
#pragma once

#include "constants.h"
#include "decide.h"
#include "deliver.h"
#include "drops.h"
#include "rewrite.h"

/* How many ports are tried for one that is free before the backend, and which: those that no client
 * takes of itself. */
#define ACROSS_TRIES 64
#define ACROSS_FIRST_PORT 1024
#define ACROSS_PORTS 31744

/* What is for the program itself to call, since others need the stack: take_across; who sends on what
 * has its ends in work->out, to work->destination; and hand_across. */
#define GO_ACROSS -3
#define GO_BACK -4
#define GO_HERE -5

struct across_search {
	__u32 start;
	__be16 kept; /* the port that the client has already, or zero */
	__u16 found;
};

/* One port; says whether the search is over. */
static long try_across_port(__u32 index, void *context)
{
	struct across_search *search = context;
	struct work *work = work_at_hand();
	struct connection *known;

	if (!work)
		return 1;
	work->flow.transport.source_port =
		!index && search->kept ?
			search->kept :
			bpf_htons(ACROSS_FIRST_PORT + (search->start + index) % ACROSS_PORTS);
	name_connection(&work->key, &work->flow, is_higher(&work->flow));
	known = connection_at(&work->key);
	search->found = !known || is_over(known, work->key.protocol, work->now) ||
			is_same_crossing(known, work);
	return search->found;
}

static __noinline __be16 port_kept(struct work *work)
{
	struct connection *lead;

	name_connection(&work->key, &work->wire, is_higher(&work->wire));
	lead = connection_at(&work->key);
	if (!lead || (lead->flags & LEADS_ACROSS) != LEADS_ACROSS ||
	    lead->network != work->to.network || lead->nat_port != work->to.port ||
	    !same_address(&lead->nat_address, &work->to.address))
		return 0;
	return lead->near_port;
}

/* A port of the service's address for the client, which nobody else has before this backend. */
static __noinline verdict take_across_port(struct work *work)
{
	struct across_search search = { .start = bpf_get_prandom_u32(), .kept = port_kept(work) };

	bpf_loop(ACROSS_TRIES, try_across_port, &search, 0);
	return search.found ? FINE : DROP_NAT_PORTS_SPENT;
}

/* The backend's place, and that of its network. */
static __noinline verdict find_backend(struct work *work)
{
	struct endpoint *to = endpoint_of(work->to.network, &work->to.address);

	if (!to || !to->ifindex)
		return DROP_NO_BACKEND;
	work->flow.network = work->to.network;
	work->flow.table = to->table;
	note_end(&work->destination, to);
	return FINE;
}

/* The backend says which network is asked; with that, the generation comes first and the service is
 * asked once more. */
static __always_inline verdict settle_on_backend(struct work *work)
{
	verdict judged = find_backend(work);

	if (judged != FINE)
		return judged;
	if (!read_generation(work))
		return DROP_CONNECTIONS_EXHAUSTED;
	work->to.is_kept = 1;
	judged = choose_backend(&work->wire, &work->to);
	work->to.is_service = 0;
	return judged == FINE && work->to.is_kept ? find_backend(work) : DROP_NO_BACKEND;
}

static __always_inline verdict judge_across(struct __sk_buff *skb, struct work *work)
{
	verdict judged = settle_on_backend(work);

	if (judged != FINE)
		return judged;
	work->flow.source = work->wire.destination;
	work->flow.destination = work->to.address;
	work->flow.transport.destination_port = work->to.port;
	judged = take_across_port(work);
	if (judged == FINE && work->flow.transport.part != PART_WHOLE)
		judged = take_number(work);
	if (judged != FINE)
		return judged;
	copy_flow(&work->out, &work->flow);
	work->is_translated = 1;
	return decide(skb, work);
}

/* To a pod of this node, with the ends of work->out. */
static __noinline int hand_across(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	struct ethhdr *eth;

	if (!work || !work->destination.place.ifindex)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	if (work->is_translated && (rewrite(skb) || renumber(skb, work)))
		return drop(skb, work->wire.network, DROP_KERNEL_REFUSED);
	eth = frame_start(skb, sizeof(*eth));
	if (!eth)
		return drop(skb, work->wire.network, DROP_MALFORMED);
	if (work->source.place.ifindex)
		count_sent(skb, work->source.place.slot);
	return deliver_here(skb, eth, &work->destination.place);
}

/* What becomes of a packet to a service whose backend is a pod of this node in another network. Its
 * sender stands in work->source, the backend in work->to. */
__noinline int take_across(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	verdict judged;

	if (!work)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	judged = judge_across(skb, work);
	if (judged == FINE && work->wire.transport.part == PART_FIRST)
		judged = remember_as_it_came(work);
	if (judged != FINE)
		return drop(skb, work->wire.network, judged);
	return hand_across(skb);
}

/* Whether the packet came from where its sender is: a pod of this node, or the node that has it. */
static __always_inline bool comes_across(struct __sk_buff *skb, const struct work *work,
					 const struct connection *known, bool from_high)
{
	const struct place *from = from_high ? &known->high : &known->low;

	if (skb->ifindex != OVERLAY_IFINDEX)
		return from->ifindex == skb->ifindex;
	return !from->ifindex && same_address(&known->node, &work->node.address);
}

static __always_inline void keep_seen(struct connection *entry, __u64 now)
{
	if (!was_just_seen(entry, now))
		entry->last_seen = now;
}

/* A client's packet by what leads it on; GO_HERE, or GO_ON where it must be decided. */
static __noinline int follow_across(struct __sk_buff *skb, struct work *work,
				    struct connection *lead)
{
	struct network *network = network_at(lead->table);
	bool from_high = is_higher(&work->wire);
	struct connection *known;

	if (!network || network->network != lead->network ||
	    network->generation != lead->generation || !is_by_sender(lead, from_high) ||
	    !comes_across(skb, work, lead, from_high))
		return GO_ON;
	note_client(work, ACROSS_HERE);
	work->source.place = from_high ? lead->high : lead->low;
	work->flow.network = lead->network;
	work->flow.table = lead->table;
	work->flow.source = work->wire.destination;
	work->flow.transport.source_port = lead->near_port;
	work->flow.destination = lead->nat_address;
	work->flow.transport.destination_port = lead->nat_port;
	from_high = is_higher(&work->flow);
	name_connection(&work->key, &work->flow, from_high);
	known = connection_at(&work->key);
	if (!known || known->table != lead->table || !is_same_crossing(known, work) ||
	    !holds(known, network, &work->flow.transport, work->now)) {
		begin_work(work, work->now);
		return GO_ON;
	}
	work->destination.place = place_of_receiver(known, from_high);
	note(skb, &work->flow, known, from_high, work->now);
	lead->state = known->state;
	keep_seen(lead, work->now);
	copy_flow(&work->out, &work->flow);
	work->is_translated = 1;
	return GO_HERE;
}

/* The client of an answer, and the answer as the client sees it. */
static __always_inline void note_answer(struct work *work, const struct connection *known)
{
	const struct flow *wire = &work->wire;

	work->across = ACROSS_HERE;
	work->client_network = known->network;
	work->client = known->nat_address;
	work->client_port = known->nat_port;
	work->service_port = known->near_port;
	work->to = (struct translation){ .network = wire->network,
					 .address = wire->source,
					 .port = wire->transport.source_port };
	copy_flow(&work->out, wire);
	work->out.network = known->network;
	work->out.source = wire->destination;
	work->out.transport.source_port = known->near_port;
	work->out.destination = known->nat_address;
	work->out.transport.destination_port = known->nat_port;
	work->is_translated = 1;
}

/* Where both ends of an answer are now; neither may be younger than the connection. */
static __noinline bool find_ends_across(struct work *work, const struct connection *known)
{
	struct endpoint *to = endpoint_of(work->client_network, &work->client);
	struct endpoint *from = endpoint_of(work->flow.network, &work->flow.source);

	if (!to || !from || !from->ifindex)
		return false;
	note_end(&work->source, from);
	note_end(&work->destination, to);
	return known->opened >= since(work);
}

/* Decides anew about a connection of which an answer came. */
static __always_inline verdict renew_crossing(struct work *work, struct connection *known,
					      bool from_high)
{
	verdict judged;

	if (is_over(known, work->flow.transport.protocol, work->now) ||
	    is_reopened(known, &work->flow.transport))
		return DROP_NO_CONNECTION;
	work->flow.table = known->table;
	if (!read_generation(work))
		return DROP_CONNECTIONS_EXHAUSTED;
	if (!find_ends_across(work, known))
		return DROP_NO_CONNECTION;
	pose(work, false);
	judged = judge_policy(&work->question);
	if (judged == FINE)
		settle(known, work, from_high);
	else
		known->flags |= CONNECTION_DENIED;
	return judged;
}

/* What led the client here is as far as the connection is. */
static __noinline void keep_lead_across(struct work *work, __u8 state)
{
	struct connection *lead;

	name_connection(&work->key, &work->out, is_higher(&work->out));
	lead = connection_at(&work->key);
	if (!lead || (lead->flags & LEADS_ACROSS) != LEADS_ACROSS)
		return;
	lead->state = state;
	keep_seen(lead, work->now);
}

/* An answer of a backend; GO_ON where it is none. */
static __always_inline int answer_across(struct __sk_buff *skb, struct work *work,
					 struct connection *known)
{
	struct network *network = network_at(known->table);
	bool from_high = is_higher(&work->wire);
	verdict judged = FINE;

	if (!network || network->network != work->wire.network ||
	    is_by_sender(known, from_high) || !comes_across(skb, work, known, from_high))
		return GO_ON;
	note_answer(work, known);
	work->destination.place = place_of_receiver(known, from_high);
	work->destination.node = known->node;
	if (!holds(known, network, &work->flow.transport, work->now))
		judged = renew_crossing(work, known, from_high);
	if (judged != FINE)
		return drop(skb, work->wire.network, judged);
	note(skb, &work->flow, known, from_high, work->now);
	keep_lead_across(work, known->state);
	if (work->flow.transport.part == PART_FIRST && remember_first(work) != FINE)
		return drop(skb, work->wire.network, DROP_CONNECTIONS_EXHAUSTED);
	return GO_BACK;
}

/* Gives an error the ends that its receiver knows: the service's address in the place of its sender, and
 * in what it quotes the other half in the place of this one. */
static __always_inline void turn_error(struct work *work, const struct connection *known)
{
	work->out.network = known->network;
	work->out.source = work->quote.destination = work->wire.destination;
	work->out.destination = work->quote.source = known->nat_address;
	work->quote.transport.source_port = known->nat_port;
	work->quote.transport.destination_port = known->near_port;
	work->is_translated = 1;
}

/* An error about a packet of a connection between two networks, from one end to the other; GO_ON where
 * it speaks of none. */
static __noinline int error_across(struct __sk_buff *skb, struct work *work)
{
	const struct flow *quoted = &work->quote;
	struct connection *known;
	struct network *network;
	bool from_high;

	if (!read_error(skb, work) || !same_address(&quoted->source, &work->wire.destination) ||
	    !same_address(&quoted->destination, &work->wire.source))
		return GO_ON;
	from_high = is_higher(quoted);
	name_connection(&work->key, quoted, from_high);
	known = connection_at(&work->key);
	if (!known || !(known->flags & CONNECTION_ACROSS))
		return GO_ON;
	network = network_at(known->table);
	if (!network || network->generation != known->generation ||
	    known->flags & CONNECTION_DENIED ||
	    is_over(known, work->key.protocol, work->now) ||
	    !comes_across(skb, work, known, !from_high))
		return drop(skb, work->wire.network, DROP_UNRELATED_ICMP);
	copy_flow(&work->out, &work->wire);
	if (known->flags & OF_SERVICE)
		turn_error(work, known);
	work->source.place.ifindex = 0;
	work->destination.place = from_high ? known->high : known->low;
	work->destination.node = known->node;
	return GO_BACK;
}

/* Whether the packet may belong to a connection between two networks that is known. */
static __always_inline bool may_be_across(const struct connection *known, const struct flow *flow)
{
	return known ? known->flags & CONNECTION_ACROSS :
		       is_whole_error(&flow->transport) || flow->transport.part != PART_WHOLE;
}

/* The connection of the packet as it came, if it is between two networks. A later part of a datagram gets
 * the ports of its first. */
static __noinline struct connection *find_across(struct work *work)
{
	struct flow *wire = &work->wire;
	struct connection *known;

	if (wire->transport.part == PART_LATER && !find_first(wire, work, 0))
		return NULL;
	name_connection(&work->key, wire, is_higher(wire));
	known = connection_at(&work->key);
	return known && known->flags & CONNECTION_ACROSS ? known : NULL;
}

/* What becomes of such a packet; GO_BACK or GO_HERE where it goes to work->destination with the ends of
 * work->out, and GO_ON where it must be decided. */
__noinline int pass_across(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	struct connection *known;

	if (!work)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	if (is_whole_error(&work->wire.transport))
		return error_across(skb, work);
	known = find_across(work);
	if (!known)
		return GO_ON;
	if (known->flags & CONNECTION_LEADS_ON)
		return work->wire.transport.part == PART_WHOLE ? follow_across(skb, work, known) :
								 GO_ON;
	if (!(known->flags & CONNECTION_TRANSLATED))
		return GO_ON;
	if (work->wire.transport.part == PART_LATER && work->wire.transport.offset < work->extent)
		return drop(skb, work->wire.network, DROP_OVERLAPPING_FRAGMENT);
	return answer_across(skb, work, known);
}
