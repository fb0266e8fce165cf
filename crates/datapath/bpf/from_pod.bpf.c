// SPDX-License-Identifier: GPL-2.0
/* Attached to the host side of every pod's interface: what leaves a pod comes here first.
 *
 * The rule: a frame is exactly the pod's own or it is dropped, and nothing reaches the node's own
 * network stack but a question through a door (enter_door.h), which reaches the agent alone, its part in a
 * probe, and what goes to infra where an administrator opened it (infra.h). */
#include "across.h"
#include "arp.h"
#include "decide.h"
#include "echo.h"
#include "enter_door.h"
#include "ipv4.h"
#include "ipv6.h"
#include "leave.h"
#include "maps.h"
#include "nd.h"
#include "of_service.h"
#include "refuse_service.h"
#include "rewrite.h"
#include "send.h"
#include "source.h"
#include "too_big.h"
#include "usual.h"

static __always_inline verdict check_ends(const struct interface *own, const struct ethhdr *eth,
					  const struct address *source, bool to_group)
{
	if (!has_source(own, source))
		return DROP_SPOOFED_ADDRESS;
	return to_group || is_group_mac(eth->h_dest) ? DROP_MULTICAST : FINE;
}

static __noinline int refuse_too_big(struct __sk_buff *skb, struct interface *own)
{
	drop(skb, own->network, DROP_TOO_BIG);
	return skb->protocol == bpf_htons(ETH_P_IPV6) ? refuse_too_big_ipv6(skb, own) :
							refuse_too_big_ipv4(skb, own);
}

/* Nobody in the network has the address: it is the gateway's, or a door's, or GO_ON to the outside. */
static __noinline int to_nobody(struct __sk_buff *skb, struct interface *own, struct flow *flow)
{
	struct address gateway = gateway_like(&flow->source);

	if (!same_address(&flow->destination, &gateway) ||
	    flow->transport.part != PART_WHOLE || !is_icmp(flow->transport.protocol))
		return is_mapped(&flow->source) ? enter_door_ipv4(skb, own, flow) :
						  enter_door_ipv6(skb, own, flow);
	return is_mapped(&flow->source) ? answer_echo_ipv4(skb, own) : answer_echo_ipv6(skb, own);
}

/* The sender is the pod itself, whoever else the endpoints may say has its address. */
static __always_inline void find_sender(struct __sk_buff *skb, const struct interface *own,
					struct work *work)
{
	work->source.since = own->since;
	work->source.place.ifindex = skb->ifindex;
	work->source.place.slot = own->slot;
	copy_mac(work->source.place.mac, own->mac);
}

static __noinline struct interface *far_interface(__u32 ifindex)
{
	struct interface_key key = { .ifindex = ifindex };

	return bpf_map_lookup_elem(&interfaces, &key);
}

static __always_inline struct interface *interface_of(__u32 ifindex)
{
	__u32 place = ifindex % MAX_INTERFACES;
	struct near_interface *near = bpf_map_lookup_elem(&near_interfaces, &place);

	return near && near->ifindex == ifindex ? &near->interface : far_interface(ifindex);
}

static __noinline verdict find_ends(struct __sk_buff *skb, struct interface *own,
				    struct work *work)
{
	struct endpoint *to =
		endpoint_of(work->flow.network,
			    work->is_to_itself ? &work->wire.source : &work->flow.destination);

	if (!to)
		return DROP_NO_ENDPOINT;
	find_sender(skb, own, work);
	note_end(&work->destination, to);
	return FINE;
}

static __always_inline verdict judge(struct __sk_buff *skb, struct interface *own,
				     struct work *work)
{
	verdict judged = read_generation(work) ? ask_service(skb, work) :
						 DROP_CONNECTIONS_EXHAUSTED;

	if (judged == FINE && work->across)
		find_sender(skb, own, work);
	else if (judged == FINE)
		judged = find_ends(skb, own, work);
	return judged == FINE && work->across != ACROSS_HERE ? decide(skb, work) : judged;
}

/* What becomes of the packet, or GO_ON to the outside, or GO_ACROSS to another network. */
__noinline int slow_from_pod(struct __sk_buff *skb)
{
	struct interface *own = interface_of(skb->ifindex);
	struct work *work = work_at_hand();
	verdict judged;

	if (!own || !work)
		return drop(skb, NO_NETWORK, DROP_UNKNOWN_INTERFACE);
	judged = judge(skb, own, work);
	if (judged == DROP_NO_ENDPOINT) {
		int action = to_nobody(skb, own, &work->flow);

		find_sender(skb, own, work);
		return action;
	}
	if (judged == DROP_NO_BACKEND)
		return refuse_service(skb, own, &work->flow);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	if (work->across == ACROSS_HERE)
		return GO_ACROSS;
	if (!fits(skb, &work->destination.place))
		return refuse_too_big(skb, own);
	if (work->is_translated && rewrite(skb))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return send_on(skb, own, &work->destination.place, &work->destination.node);
}

/* What has its ends in work->out goes to where it is awaited, with the number of that network. */
__noinline int send_across(struct __sk_buff *skb)
{
	struct interface *own = interface_of(skb->ifindex);
	struct work *work = work_at_hand();
	struct ethhdr *eth;

	if (!own || !work)
		return drop(skb, NO_NETWORK, DROP_UNKNOWN_INTERFACE);
	if (!fits(skb, &work->destination.place))
		return refuse_too_big(skb, own);
	if (work->is_translated && rewrite(skb))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	eth = frame_start(skb, sizeof(*eth));
	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	count_sent(skb, own->slot);
	return work->destination.place.ifindex ?
		       deliver_here(skb, eth, &work->destination.place) :
		       deliver_there(skb, eth, work->out.network, &work->destination.place,
				     &work->destination.node);
}

/* What becomes of the packet, or GO_ON to the slow path. */
__noinline int service_from_pod(struct __sk_buff *skb)
{
	struct interface *own = interface_of(skb->ifindex);
	struct work *work = work_at_hand();
	struct connection *known;

	if (!own || !work)
		return drop(skb, NO_NETWORK, DROP_UNKNOWN_INTERFACE);
	known = through_service(work);
	if (!known) {
		begin_work(work, work->now);
		return GO_ON;
	}
	if (!fits(skb, &work->destination.place))
		return refuse_too_big(skb, own);
	note_with_lead(skb, work, known);
	if (work->is_translated && rewrite(skb))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return send_on(skb, own, &work->destination.place, &work->destination.node);
}

/* Called from the program itself: policy needs what a frame between would take of the stack. */
static __always_inline int beyond_network(struct __sk_buff *skb, int action)
{
	if (action == GO_ON)
		action = answer_outside(skb);
	if (action == GO_ON)
		action = leave_network(skb);
	return action == GO_TO_NODE ? send_to_node(skb) : action;
}

/* `known` is the connection of the packet in work->wire, if it was looked up. */
static __always_inline int take_longer_path(struct __sk_buff *skb, struct work *work,
					    const struct connection *known, __u64 now)
{
	int action = GO_ON;

	begin_work(work, now);
	work->is_unknown = !known && is_simple(&work->wire.transport);
	if (may_be_across(known, &work->wire)) {
		action = pass_across(skb);
		if (action == GO_BACK)
			return send_across(skb);
		if (action == GO_HERE)
			return hand_across(skb);
	} else if (known && known->flags & OF_SERVICE) {
		action = service_from_pod(skb);
	}
	if (action != GO_ON)
		return action;
	action = slow_from_pod(skb);
	return action == GO_ACROSS ? take_across(skb) : beyond_network(skb, action);
}

/* A packet of a connection that is decided needs nothing else; GO_ON where it is not. The place is
 * taken from the entry before it is seen to be of this network: the kernel may give an entry that makes
 * room to the next connection while we look at it. */
static __always_inline int pass_at_once(struct __sk_buff *skb, struct interface *own,
					struct flow *flow, struct connection *known, bool from_high,
					__u64 now)
{
	struct network *network = network_at(own->table);
	struct place to = place_of_receiver(known, from_high);
	bool is_of_service;

	barrier();
	is_of_service = known->flags & OF_SERVICE;
	if (!network || known->table != own->table ||
	    !holds(known, network, &flow->transport, now) ||
	    (is_of_service && !is_served_at_once(known, flow, from_high, now)))
		return GO_ON;
	if (!fits(skb, &to))
		return refuse_too_big(skb, own);
	if (!is_of_service)
		note(skb, flow, known, from_high, now);
	else if (!is_routine(known, &flow->transport) && !note_on_both_sides(skb, flow, known))
		return GO_ON;
	else if (serve(skb, flow, known, own->table))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return send(skb, own, &to, &known->node);
}

/* What becomes of the packet in work->wire. */
static __always_inline int forward(struct __sk_buff *skb, struct interface *own, struct work *work)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	struct flow *flow = &work->wire;
	struct connection *known = NULL;
	struct connection_key key;
	bool from_high;
	int action;

	flow->network = own->network;
	flow->table = own->table;
	from_high = is_higher(flow);
	if (is_simple(&flow->transport)) {
		name_connection(&key, flow, from_high);
		known = connection_at(&key);
	}
	action = known ? pass_at_once(skb, own, flow, known, from_high, now) : GO_ON;
	return action == GO_ON ? take_longer_path(skb, work, known, now) : action;
}

/* Reads a packet of IPv4 into `flow`. */
static __always_inline int ipv4_from_pod(struct __sk_buff *skb, struct interface *own,
					 struct flow *flow)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	struct iphdr *ip;
	verdict judged;

	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	ip = ipv4_header(eth);
	flow->source = ipv4_mapped(ip->saddr);
	flow->destination = ipv4_mapped(ip->daddr);
	judged = check_ends(own, eth, &flow->source, is_group_ipv4(ip->daddr));
	if (judged == FINE)
		judged = check_ipv4(skb, ip);
	if (judged == FINE)
		judged = read_ipv4(skb, ip, &flow->transport);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	return GO_ON;
}

/* The same for IPv6. */
static __always_inline int ipv6_from_pod(struct __sk_buff *skb, struct interface *own,
					 struct flow *flow)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	struct ipv6hdr *ip;
	verdict judged;

	if (!own->serves_ipv6)
		return drop(skb, own->network, DROP_IPV6_NOT_SERVED);
	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	ip = ipv6_header(eth);
	flow->source = ipv6_address(&ip->saddr);
	flow->destination = ipv6_address(&ip->daddr);
	judged = check_ipv6(skb, ip, &flow->source, &flow->destination);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	if (is_nd(skb, ip))
		return answer_nd(skb, own, &flow->source);
	judged = check_ends(own, eth, &flow->source, is_group_ipv6(&flow->destination));
	if (judged == FINE)
		judged = read_ipv6(skb, ip, &flow->transport);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	leave_link(ip);
	return GO_ON;
}

/* Every packet that is not usual. It is described in work->wire. */
static __always_inline int pass(struct __sk_buff *skb, struct interface *own)
{
	struct ethhdr *eth = frame_start(skb, sizeof(*eth));
	struct work *work = work_at_hand();
	int action;

	if (!work)
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	if (!same_mac(eth->h_source, own->mac))
		return drop(skb, own->network, DROP_SPOOFED_MAC);
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		action = ipv4_from_pod(skb, own, &work->wire);
		break;
	case bpf_htons(ETH_P_IPV6):
		action = ipv6_from_pod(skb, own, &work->wire);
		break;
	case bpf_htons(ETH_P_ARP):
		return answer_arp(skb, own);
	default:
		return drop(skb, own->network, DROP_NOT_IP);
	}
	return action == GO_ON ? forward(skb, own, work) : action;
}

SEC("classifier")
int from_pod(struct __sk_buff *skb)
{
	struct interface *own = interface_of(skb->ifindex);
	int action;

	if (!own)
		return drop(skb, NO_NETWORK, DROP_UNKNOWN_INTERFACE);
	if (skb->vlan_present)
		return drop(skb, own->network, DROP_VLAN_TAGGED);
	action = pass_usual(skb, own);
	return action == GO_ON ? pass(skb, own) : action;
}

char LICENSE[] SEC("license") = "GPL";
