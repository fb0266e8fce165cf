// SPDX-License-Identifier: GPL-2.0
/* Attached to the node's uplink, where a network of the node has to do with the outside: what comes
 * from outside comes here first.
 *
 * The rule: what belongs to a connection of a pod reaches that pod and nobody else, and never the
 * node's own stack. Everything else is the node's, and passes as it came. */
#include "constants.h"
#include "decide.h"
#include "deliver.h"
#include "drops.h"
#include "enter.h"
#include "ipv4.h"
#include "ipv6.h"
#include "maps.h"
#include "quote_outside.h"
#include "send_outside.h"

/* The packet becomes one to the pod that the way in leads to. */
static __always_inline void follow_way_in(struct work *work, const struct connection *way)
{
	work->flow.network = way->network;
	work->flow.table = way->table;
	work->flow.destination = way->nat_address;
	work->flow.transport.destination_port = way->nat_port;
	copy_flow(&work->out, &work->flow);
	work->outside = OUTSIDE_SENDER;
}

/* The way in of the packet at hand, by the packet that it is about. NULL where it is the node's. */
static __noinline struct connection *find_way_in(struct __sk_buff *skb, struct work *work)
{
	const struct flow *seen = &work->flow;
	struct connection *way;

	if (is_icmp(seen->transport.protocol) && is_error(&seen->transport)) {
		if (!read_quoted(skb, work))
			return NULL;
		seen = &work->reverse;
	} else if (seen->transport.part == PART_LATER) {
		if (!find_first(&work->flow, work, 0))
			return NULL;
		work->wire.transport = work->flow.transport;
	}
	name_way_in(&work->key, seen);
	way = connection_at(&work->key);
	return way && !is_over(way, work->key.protocol, work->now) ? way : NULL;
}

static __always_inline verdict find_pod(struct work *work)
{
	struct endpoint *to = endpoint_of(work->flow.network, &work->flow.destination);

	if (!to || (to->ifindex && to->table != work->flow.table))
		return DROP_NO_ENDPOINT;
	note_end(&work->destination, to);
	__builtin_memset(&work->source, 0, sizeof(work->source));
	work->source.place.ifindex = UPLINK_IFINDEX;
	return read_generation(work) ? FINE : DROP_CONNECTIONS_EXHAUSTED;
}

/* The later parts of the datagram come with the face of the pod, and no ports. */
static __always_inline verdict remember_face(struct work *work)
{
	if (work->wire.transport.part != PART_FIRST)
		return FINE;
	work->wire.table = work->out.table;
	copy_flow(&work->flow, &work->wire);
	return remember_first(work);
}

static __always_inline verdict judge_entering(struct __sk_buff *skb, struct work *work)
{
	verdict judged = identify(skb);

	if (judged != FINE)
		return judged;
	if (work->outcome == OUTCOME_PASS)
		return DROP_NO_CONNECTION;
	if (work->outcome != OUTCOME_GO_ON)
		judged = judge_policy(&work->question);
	return conclude(skb, judged);
}

/* The pod's side of the packet, to which the way in leads. */
static __always_inline void turn_round(struct work *work)
{
	const struct flow *in = &work->out;
	struct flow *back = &work->sender;

	copy_flow(back, in);
	back->source = in->destination;
	back->destination = in->source;
	back->transport.source_port = in->transport.destination_port;
	back->transport.destination_port = in->transport.source_port;
}

static __noinline verdict enter(struct __sk_buff *skb, struct work *work)
{
	verdict judged = find_pod(work);

	if (judged == FINE)
		judged = judge_entering(skb, work);
	if (judged != FINE)
		return judged;
	turn_round(work);
	judged = keep_way_in(work, &work->wire);
	if (judged == FINE)
		judged = remember_face(work);
	if (judged == FINE && rewrite_outside(skb))
		judged = DROP_KERNEL_REFUSED;
	return judged;
}

static __noinline verdict enter_error(struct __sk_buff *skb, struct work *work)
{
	verdict judged = find_pod(work);

	if (judged != FINE)
		return judged;
	return rewrite_quote(skb, work) ? DROP_KERNEL_REFUSED : FINE;
}

/* To the pod, wherever it is. */
static __noinline int hand_in(struct __sk_buff *skb, struct work *work)
{
	struct ethhdr *eth = frame_start(skb, sizeof(*eth));

	copy_flow(&work->flow, &work->out);
	if (!work->destination.place.ifindex)
		return send_to_node(skb);
	return eth ? deliver_here(skb, eth, &work->destination.place) :
		     drop(skb, work->out.network, DROP_MALFORMED);
}

/* Whether the way in leads the packet on: not where a first word comes after the end, nor to a pod
 * that is gone. */
static __always_inline bool leads_on(const struct connection *way, const struct work *work)
{
	const struct endpoint_key pod = { .network = way->network, .address = way->nat_address };

	return !is_reopened(way, &work->flow.transport) && bpf_map_lookup_elem(&endpoints, &pod);
}

/* An error from outside, about a packet that went out by the way. */
static __noinline int take_in_error(struct __sk_buff *skb, struct work *work)
{
	struct connection *way = find_way_in(skb, work);
	verdict judged = DROP_UNRELATED_ICMP;

	if (!way)
		return NOT_OURS;
	follow_way_in(work, way);
	if (read_generation(work) && is_about_connection(work, way))
		judged = enter_error(skb, work);
	return judged == FINE ? hand_in(skb, work) : drop(skb, work->flow.network, judged);
}

/* What becomes of a packet from outside, whose flow is in the work at hand. */
__noinline int take_in(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	struct connection *way;
	verdict judged;

	if (!work)
		return NOT_OURS;
	if (is_icmp(work->flow.transport.protocol) && is_error(&work->flow.transport))
		return take_in_error(skb, work);
	way = find_way_in(skb, work);
	if (way && leads_on(way, work))
		follow_way_in(work, way);
	else if (!find_entrance(work) || !lead_in(work))
		return NOT_OURS;
	judged = enter(skb, work);
	return judged == FINE ? hand_in(skb, work) : drop(skb, work->out.network, judged);
}

/* Reads a packet of IPv4 into `flow`; says whether it may be anybody's but the node's. */
static __always_inline bool ipv4_from_uplink(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	struct iphdr *ip;

	if (!eth)
		return false;
	ip = ipv4_header(eth);
	flow->source = ipv4_mapped(ip->saddr);
	flow->destination = ipv4_mapped(ip->daddr);
	return check_ipv4(skb, ip) == FINE && read_ipv4(skb, ip, &flow->transport) == FINE;
}

/* The same for IPv6. */
static __always_inline bool ipv6_from_uplink(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	struct ipv6hdr *ip;

	if (!eth)
		return false;
	ip = ipv6_header(eth);
	flow->source = ipv6_address(&ip->saddr);
	flow->destination = ipv6_address(&ip->daddr);
	return check_ipv6(skb, ip, &flow->source, &flow->destination) == FINE &&
	       read_ipv6(skb, ip, &flow->transport) == FINE;
}

/* What the nodes say to each other, which is most of what comes here. */
static __always_inline bool is_tunnel(const struct transport *t)
{
	return t->protocol == UDP_PROTOCOL && t->part == PART_WHOLE &&
	       t->destination_port == bpf_htons(OVERLAY_PORT);
}

SEC("classifier")
int from_uplink(struct __sk_buff *skb)
{
	struct ethhdr *eth = frame_start(skb, sizeof(*eth));
	struct work *work = work_at_hand();
	struct flow flow = {};
	bool is_read = false;

	if (!eth || !work || skb->vlan_present)
		return NOT_OURS;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		is_read = ipv4_from_uplink(skb, &flow);
	else if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		is_read = ipv6_from_uplink(skb, &flow);
	if (!is_read || is_tunnel(&flow.transport))
		return NOT_OURS;
	begin_work(work, &flow, bpf_ktime_get_coarse_ns());
	return take_in(skb);
}

char LICENSE[] SEC("license") = "GPL";
