// SPDX-License-Identifier: GPL-2.0
/* Attached to the node's uplink, where a network of the node has to do with the outside: what comes
 * from outside comes here first.
 *
 * The rule: what belongs to a connection of a pod reaches that pod and nobody else, and never the
 * node's own stack. Nor does what comes to an address that the node answers for on behalf of a
 * network, but pings and neighbour discovery. Everything else is the node's, and passes as it came,
 * unless a pod of this node sent it (loop.h). */
#include "come_in.h"
#include "constants.h"
#include "drops.h"
#include "enter.h"
#include "ipv4.h"
#include "ipv6.h"
#include "maps.h"
#include "refuse_outside.h"

/* Whether the way in leads the packet on: not datagrams to a pod that their service has no more. */
static __always_inline bool leads_on(struct connection *way, struct work *work)
{
	return is_for_its_pod(way, work) && still_leads(work, way);
}

/* A ping that is whole; the node answers it. */
static __always_inline bool is_ping(const struct transport *t)
{
	return is_icmp(t->protocol) && t->part == PART_WHOLE && is_opening(t);
}

/* What no network takes is the node's, unless it came to an address that is there for one. */
static __noinline int leave_to_node(struct __sk_buff *skb, struct flow *flow)
{
	struct held *held = held_at(&flow->destination);

	return held ? drop(skb, held->network, DROP_NOT_SERVED) : NOT_OURS;
}

/* An error from outside, about a packet that went out. */
static __noinline int take_in_error(struct __sk_buff *skb, struct work *work)
{
	struct connection *way = find_way_in(skb, work);

	return way ? bring_error(skb, work, way) : leave_to_node(skb, &work->wire);
}

/* Leads a packet that nobody called to a service. A verdict, or THE_NODES. */
static __noinline int knock(struct work *work)
{
	int judged = find_entrance(work);

	return judged == FINE ? lead_in(work) : judged;
}

/* What becomes of a packet from outside, whose flow is in the work at hand. */
__noinline int take_in(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	struct connection *way;
	int judged = FINE;
	__u32 network;

	if (!work)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	if (is_about_another(&work->flow.transport))
		return take_in_error(skb, work);
	way = find_way_in(skb, work);
	if (way && leads_on(way, work))
		follow_way_in(work, way);
	else if (is_ping(&work->flow.transport))
		return NOT_OURS;
	else
		judged = knock(work);
	network = work->flow.network;
	if (work->loops && (judged == THE_NODES || judged == DROP_NO_BACKEND))
		return refuse_looped(skb, &work->wire, network);
	if (judged == THE_NODES)
		return NOT_OURS;
	if (judged == DROP_NO_BACKEND)
		return refuse_stranger(skb, &work->wire, network);
	if (judged == FINE)
		judged = enter(skb, work);
	return judged == FINE ? hand_in(skb, work) : drop(skb, network, judged);
}

/* Reads a packet of IPv4 into `flow`. A verdict. */
static __always_inline verdict ipv4_from_uplink(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	struct iphdr *ip;
	verdict judged;

	if (!eth)
		return DROP_MALFORMED;
	ip = ipv4_header(eth);
	flow->source = ipv4_mapped(ip->saddr);
	flow->destination = ipv4_mapped(ip->daddr);
	judged = check_ipv4(skb, ip);
	return judged == FINE ? read_ipv4(skb, ip, &flow->transport) : judged;
}

/* The same for IPv6. */
static __always_inline verdict ipv6_from_uplink(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	struct ipv6hdr *ip;
	verdict judged;

	if (!eth)
		return DROP_MALFORMED;
	ip = ipv6_header(eth);
	flow->source = ipv6_address(&ip->saddr);
	flow->destination = ipv6_address(&ip->daddr);
	judged = check_ipv6(skb, ip, &flow->source, &flow->destination);
	return judged == FINE ? read_ipv6(skb, ip, &flow->transport) : judged;
}

static __always_inline bool is_underlay(const struct address *ip)
{
	const struct address own = { .words = { UNDERLAY_IPV6[0], UNDERLAY_IPV6[1],
						UNDERLAY_IPV6[2], UNDERLAY_IPV6[3] } };

	if (UNDERLAY_IPV4)
		return is_mapped(ip) && ipv4_of(ip) == bpf_htonl(UNDERLAY_IPV4);
	return same_address(ip, &own);
}

/* What the nodes say to each other, which is most of what comes here. */
static __always_inline bool is_tunnel(const struct flow *flow)
{
	const struct transport *t = &flow->transport;

	return t->protocol == UDP_PROTOCOL && t->part == PART_WHOLE &&
	       t->destination_port == bpf_htons(OVERLAY_PORT) && is_underlay(&flow->destination);
}

SEC("classifier")
int from_uplink(struct __sk_buff *skb)
{
	struct ethhdr *eth = frame_start(skb, sizeof(*eth));
	struct work *work = work_at_hand();
	struct flow flow = {};
	verdict judged;
	bool loops;

	if (!eth || !work)
		return NOT_OURS;
	loops = is_looped(eth);
	if (skb->pkt_type == PACKET_OTHERHOST && !loops)
		return NOT_OURS;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		judged = ipv4_from_uplink(skb, &flow);
	else if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		judged = ipv6_from_uplink(skb, &flow);
	else
		return NOT_OURS;
	if (judged == DROP_UNWANTED_ND || (judged == FINE && is_tunnel(&flow)))
		return NOT_OURS;
	if (judged != FINE || skb->vlan_present)
		return leave_to_node(skb, &flow);
	copy_flow(&work->wire, &flow);
	begin_work(work, bpf_ktime_get_coarse_ns());
	work->loops = loops;
	return take_in(skb);
}

char LICENSE[] SEC("license") = "GPL";
