/* SPDX-License-Identifier: GPL-2.0 */
/* The way out: what a pod sends to nobody of its network leaves by the node's uplink, where the
 * network has egress, or goes to the node that answers for the network's address, and leaves there.
 * The node's own stack has no part in it.
 *
 * The rules: nothing leaves for an address that is closed, but for a port there that its owner opened to
 * the network (opening.h), and of policy the pod's egress is asked about the address outside, on the
 * pod's own node. A face is taken from the ports that are the
 * network's alone; where all that are tried are taken, the packet is dropped under a name. Pods of
 * other nodes leave here only where the network's address is here, and never go on to a third node. */
#pragma once

#include "constants.h"
#include "decide.h"
#include "drops.h"
#include "infra.h"
#include "opening.h"
#include "send_outside.h"

/* How many ports are tried for one that is free towards the same end. */
#define PORT_TRIES 64

static __always_inline struct egress *egress_of(__u32 network)
{
	const struct egress_key key = { .network = network };

	return bpf_map_lookup_elem(&egresses, &key);
}

/* Whether a pod of this node leaves by another one, which is filled in. */
static __noinline bool find_exit_there(struct work *work)
{
	struct egress_node_key key = { .network = work->flow.network,
				       .ipv6 = !is_mapped(&work->flow.destination) };
	struct egress_node *there;

	if (!work->source.place.ifindex)
		return false;
	there = bpf_map_lookup_elem(&egress_nodes, &key);
	if (!there)
		return false;
	work->destination.node = there->node;
	work->destination.place.ifindex = 0;
	work->face = (struct face){};
	return true;
}

/* Gives work->out the address of the network's face; says whether there is one here. */
static __noinline bool find_exit_here(struct work *work)
{
	struct egress *egress = egress_of(work->flow.network);

	if (!egress)
		return false;
	copy_flow(&work->sender, &work->flow);
	copy_flow(&work->out, &work->flow);
	work->out.source = is_mapped(&work->flow.destination) ? egress->ipv4 : egress->ipv6;
	work->first_port = egress->first_port;
	work->ports = egress->ports;
	return !is_none(&work->out.source) && work->ports;
}

/* Where the packet leaves for the outside, if it may at all. */
static __noinline verdict find_exit(struct work *work)
{
	verdict closed;

	if (!find_exit_here(work) && !find_exit_there(work))
		return DROP_NO_ENDPOINT;
	closed = reason_closed(work->flow.network, &work->flow.destination);
	if (closed != FINE)
		return closed;
	closed = reason_closed(NO_NETWORK, &work->flow.destination);
	return closed == FINE || is_opened(work) ? FINE : closed;
}

/* And where it leaves, if for a node or a pod of no tenant. */
static __always_inline verdict find_any_exit(struct __sk_buff *skb, struct work *work)
{
	verdict judged = find_exit(work);

	if (judged == FINE)
		return FINE;
	judged = find_infra(work, judged);
	if (judged == FINE && work->destination.place.ifindex == NODE_IFINDEX && leads_out(skb, work))
		return DROP_NO_ENDPOINT;
	return judged;
}

struct port_search {
	__u32 start;
	__u32 found;
};

/* One port; says whether the search is over. What is over is free, and so is what leads to this very
 * sender. */
static long try_port(__u32 index, void *context)
{
	struct port_search *search = context;
	struct work *work = work_at_hand();
	struct connection *way;

	if (!work || !work->ports)
		return 1;
	work->out.transport.source_port =
		bpf_htons(work->first_port + (search->start + index) % work->ports);
	name_way_in(work, &work->out, true);
	way = connection_at(&work->key);
	search->found = !way || leads_to(way, &work->sender) ||
			is_over(way, work->flow.transport.protocol, work->now);
	return search->found;
}

/* A port for work->out, whose way in nobody else has. */
static __noinline verdict take_port(void)
{
	struct port_search search = { .start = bpf_get_prandom_u32() };

	bpf_loop(PORT_TRIES, try_port, &search, 0);
	return search.found ? FINE : DROP_NAT_PORTS_SPENT;
}

/* The face that the connection has, if it is the network's still, or a new one. What leaves by another
 * node has its face there. */
static __noinline verdict take_face(struct work *work)
{
	struct connection *known = work->outcome == OUTCOME_OPEN ? NULL : connection_at(&work->key);
	verdict judged = FINE;

	if (!work->destination.place.ifindex) {
		if (known)
			known->nat_address = work->face.address;
		return FINE;
	}
	if (known && same_address(&known->nat_address, &work->out.source)) {
		work->out.transport.source_port = known->nat_port;
		return FINE;
	}
	judged = take_port();
	work->face.address = work->out.source;
	work->face.port = work->out.transport.source_port;
	name_connection(&work->key, &work->flow, is_higher(&work->flow));
	known = judged == FINE && known ? connection_at(&work->key) : NULL;
	if (known) {
		known->nat_address = work->face.address;
		known->nat_port = work->face.port;
	}
	return judged;
}

/* What breaks off a connection that nobody knows, and what cannot be told to be of one, has no
 * face. */
static __always_inline verdict check_outcome(const struct work *work)
{
	const struct transport *t = &work->flow.transport;
	verdict judged = check_sum(t);

	if (judged != FINE)
		return judged;
	if (work->outcome == OUTCOME_PASS)
		return is_icmp(t->protocol) ? DROP_UNRELATED_ICMP : DROP_NO_CONNECTION;
	if (work->outcome == OUTCOME_OPEN && !is_opening(t) && (breaks_off(t) || is_last_word(t)))
		return DROP_NO_CONNECTION;
	return FINE;
}

static __always_inline verdict judge_leaving(struct __sk_buff *skb, struct work *work)
{
	verdict judged = find_any_exit(skb, work);

	if (judged == FINE)
		judged = identify(skb);
	if (judged == FINE)
		judged = check_outcome(work);
	if (judged != FINE)
		return judged;
	if (work->outcome != OUTCOME_GO_ON)
		judged = judge_policy(&work->question);
	if (judged == FINE)
		judged = take_face(work);
	return conclude(skb, judged);
}

/* What becomes of a packet to nobody of its network, or GO_TO_NODE. Its sender stands in
 * work->source. */
__noinline int leave_network(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	verdict judged;

	if (!work)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	work->outside = OUTSIDE_RECEIVER;
	__builtin_memset(&work->destination, 0, sizeof(work->destination));
	work->destination.place.ifindex = UPLINK_IFINDEX;
	judged = judge_leaving(skb, work);
	if (judged != FINE)
		return drop(skb, work->flow.network, judged);
	count_sent(skb, work->source.place.slot);
	return work->destination.place.ifindex ? send_outside(skb, work) : GO_TO_NODE;
}

/* Whether pods of other nodes leave by this one. Then the place of their network is filled in. */
static __noinline bool leaves_here(struct work *work)
{
	struct egress *egress = egress_of(work->flow.network);

	if (!egress || !egress->for_all ||
	    endpoint_of(work->flow.network, &work->flow.destination))
		return false;
	work->flow.table = egress->table;
	return read_generation(work);
}

/* What becomes of a packet of another node's pod, which stands in work->source, to nobody of its
 * network. */
__noinline int leave_for_another(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	verdict judged;

	if (!work)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	work->outside = OUTSIDE_RECEIVER;
	__builtin_memset(&work->destination, 0, sizeof(work->destination));
	work->destination.place.ifindex = UPLINK_IFINDEX;
	judged = leaves_here(work) ? judge_leaving(skb, work) : DROP_NO_ENDPOINT;
	if (judged != FINE)
		return drop(skb, work->flow.network, judged);
	return send_outside(skb, work);
}
