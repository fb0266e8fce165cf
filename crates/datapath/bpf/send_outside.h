/* SPDX-License-Identifier: GPL-2.0 */
/* The last hop of what goes to the outside, and the answers to who came from there.
 *
 * The rule: an answer goes back by the node that its connection came in by, and has the face there
 * that was spoken to. Nothing but an answer leaves so. */
#pragma once

#include "constants.h"
#include "decide.h"
#include "drops.h"
#include "loop.h"
#include "to_node.h"
#include "tunnel.h"
#include "way_in.h"

/* The packet has its face in work->out, and its sender in work->sender. */
static __always_inline int send_outside(struct __sk_buff *skb, struct work *work)
{
	verdict judged = keep_way_in(work, &work->out);

	if (judged == FINE && rewrite_outside(skb))
		judged = DROP_KERNEL_REFUSED;
	if (judged != FINE)
		return drop(skb, work->sender.network, judged);
	if (work->loops)
		return loop(skb);
	return work->destination.place.ifindex == NODE_IFINDEX ?
		       to_node(skb) :
		       bpf_redirect_neigh(UPLINK_IFINDEX, NULL, 0, 0);
}

/* Whoever is outside knows nothing of the tunnel, and sends as much as its own links carry: that passes
 * in parts. Kernels cut nothing for a tunnel over IPv6. */
static __always_inline bool passes_in_parts(struct __sk_buff *skb, const struct work *work)
{
	return UNDERLAY_IPV4 && work->outside == OUTSIDE_SENDER && !skb->gso_size;
}

/* To the node that has the other end. */
__noinline int send_to_node(struct __sk_buff *skb)
{
	struct ethhdr *eth = frame_start(skb, sizeof(*eth));
	struct work *work = work_at_hand();
	bool fits;

	if (!work)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	fits = fits_tunnel(skb);
	if (!eth || (!fits && !passes_in_parts(skb, work)))
		return drop(skb, work->flow.network, eth ? DROP_TOO_BIG : DROP_MALFORMED);
	return send_by_tunnel(skb, eth, work->flow.network, &work->destination.place,
			      &work->destination.node, fits ? BPF_F_DONT_FRAGMENT : 0);
}

/* An answer to a mask (mask.h) goes to who wears it. */
static __always_inline void take_off_mask(struct work *work, const struct connection *known)
{
	work->is_masked = 1;
	work->client = work->out.destination = known->node;
	work->client_port = work->out.transport.destination_port = known->near_port;
}

/* Whether somebody outside opened the connection of the packet. What is known of it is filled in. */
static __noinline bool is_answer(struct work *work)
{
	struct flow *flow = &work->flow;
	struct connection *known;
	bool from_high;

	if (flow->transport.part == PART_LATER && find_first(flow, work, 0))
		work->wire.transport = flow->transport;
	from_high = is_higher(flow);
	name_connection(&work->key, flow, from_high);
	known = connection_at(&work->key);
	if (!known || !(known->flags & CONNECTION_OUTSIDE) || is_by_sender(known, from_high))
		return false;
	flow->table = known->table;
	copy_flow(&work->sender, flow);
	copy_flow(&work->out, flow);
	work->out.source = known->nat_address;
	work->out.transport.source_port = known->nat_port;
	if (known->near_port)
		take_off_mask(work, known);
	work->destination.since = 0;
	work->destination.place = from_high ? known->low : known->high;
	work->destination.node = known->node;
	work->loops = work->destination.place.ifindex == LOOP_IFINDEX;
	return true;
}

static __always_inline verdict judge_answer(struct __sk_buff *skb, struct work *work)
{
	verdict judged = read_generation(work) ? identify(skb) : DROP_CONNECTIONS_EXHAUSTED;

	if (judged == FINE)
		judged = check_sum(&work->flow.transport);
	if (judged != FINE)
		return judged;
	if (work->outcome == OUTCOME_OPEN || work->outcome == OUTCOME_PASS)
		return DROP_NO_CONNECTION;
	if (work->outcome == OUTCOME_RENEW)
		judged = judge_policy(&work->question);
	return conclude(skb, judged);
}

/* What comes to a packet that leaves by another node: send_to_node is for the program itself to call,
 * since its tunnel key does not fit on a longer path's stack. */
#define GO_TO_NODE -2

/* What becomes of an answer to the outside, whose sender stands in work->source; GO_ON where it is
 * none. */
__noinline int answer_outside(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	verdict judged;

	if (!work)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	if (!is_answer(work))
		return GO_ON;
	work->outside = OUTSIDE_RECEIVER;
	judged = judge_answer(skb, work);
	if (judged != FINE)
		return drop(skb, work->flow.network, judged);
	if (work->source.place.ifindex)
		count_sent(skb, work->source.place.slot);
	return work->destination.place.ifindex ? send_outside(skb, work) : GO_TO_NODE;
}
