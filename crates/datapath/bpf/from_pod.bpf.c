// SPDX-License-Identifier: GPL-2.0
/* Attached to the host side of every pod's interface: what leaves a pod comes here first.
 *
 * The rule: a frame is exactly the pod's own or it is dropped, and nothing reaches the node's own
 * network stack but a question through a door (enter_door.h), which reaches the agent alone. */
#include "arp.h"
#include "deliver.h"
#include "drops.h"
#include "echo.h"
#include "enter_door.h"
#include "ipv4.h"
#include "ipv6.h"
#include "maps.h"
#include "nd.h"
#include "policy_maps.h"
#include "source.h"
#include "too_big.h"
#include "track.h"
#include "tunnel.h"

static __always_inline struct endpoint *find(__u32 network, const struct address *destination)
{
	struct endpoint_key key = { .network = network, .address = *destination };

	return bpf_map_lookup_elem(&endpoints, &key);
}

static __always_inline verdict check_ends(const struct interface *own, const struct ethhdr *eth,
					  const struct address *source, bool to_group)
{
	if (!has_source(own, source))
		return DROP_SPOOFED_ADDRESS;
	return to_group || is_group_mac(eth->h_dest) ? DROP_MULTICAST : FINE;
}

static __always_inline int send(struct __sk_buff *skb, struct ethhdr *eth,
				const struct interface *own, const struct endpoint *to)
{
	count_sent(skb, own->slot);
	return to->ifindex ? deliver_here(skb, eth, to) : deliver_there(skb, eth, own->network, to);
}

/* The flow of a packet from `own`'s pod to `to`. */
static __always_inline verdict track_to(struct __sk_buff *skb, struct flow *flow,
					const struct interface *own, const struct endpoint *to)
{
	flow->network = own->network;
	flow->table = own->table;
	flow->since = own->since > to->since ? own->since : to->since;
	return track(skb, flow);
}

static __always_inline int ipv4_from_pod(struct __sk_buff *skb, struct interface *own)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	struct endpoint *to;
	struct iphdr *ip;
	struct flow flow;
	verdict judged;

	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	ip = ipv4_header(eth);
	flow.source = ipv4_mapped(ip->saddr);
	flow.destination = ipv4_mapped(ip->daddr);
	judged = check_ends(own, eth, &flow.source, is_group_ipv4(ip->daddr));
	if (judged == FINE)
		judged = check_ipv4(skb, ip);
	if (judged == FINE)
		judged = read_ipv4(skb, ip, &flow.transport);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	to = find(own->network, &flow.destination);
	if (!to && is_for_gateway_ipv4(ip))
		return answer_echo_ipv4(skb, own);
	if (!to)
		return enter_door_ipv4(skb, own, &flow);
	judged = track_to(skb, &flow, own, to);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	if (!to->ifindex && !fits_tunnel(skb))
		return refuse_too_big_ipv4(skb, own);
	return send(skb, eth, own, to);
}

static __always_inline int ipv6_from_pod(struct __sk_buff *skb, struct interface *own)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	struct endpoint *to;
	struct ipv6hdr *ip;
	struct flow flow;
	verdict judged;

	if (!own->serves_ipv6)
		return drop(skb, own->network, DROP_IPV6_NOT_SERVED);
	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	ip = ipv6_header(eth);
	flow.source = ipv6_address(&ip->saddr);
	flow.destination = ipv6_address(&ip->daddr);
	judged = check_ipv6(skb, ip, &flow.source, &flow.destination);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	if (is_nd(skb, ip))
		return answer_nd(skb, own, &flow.source);
	judged = check_ends(own, eth, &flow.source, is_group_ipv6(&flow.destination));
	if (judged == FINE)
		judged = read_ipv6(skb, ip, &flow.transport);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	leave_link(ip);
	to = find(own->network, &flow.destination);
	if (!to && is_for_gateway_ipv6(ip, &flow.destination))
		return answer_echo_ipv6(skb, own);
	if (!to)
		return enter_door_ipv6(skb, own, &flow);
	judged = track_to(skb, &flow, own, to);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	if (!to->ifindex && !fits_tunnel(skb))
		return refuse_too_big_ipv6(skb, own);
	return send(skb, eth, own, to);
}

SEC("classifier")
int from_pod(struct __sk_buff *skb)
{
	struct interface_key key = { .ifindex = skb->ifindex };
	struct interface *own = bpf_map_lookup_elem(&interfaces, &key);
	struct ethhdr *eth;

	if (!own)
		return drop(skb, NO_NETWORK, DROP_UNKNOWN_INTERFACE);
	if (skb->vlan_present)
		return drop(skb, own->network, DROP_VLAN_TAGGED);
	eth = frame_start(skb, sizeof(*eth));
	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	if (!same_mac(eth->h_source, own->mac))
		return drop(skb, own->network, DROP_SPOOFED_MAC);
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		return ipv4_from_pod(skb, own);
	case bpf_htons(ETH_P_IPV6):
		return ipv6_from_pod(skb, own);
	case bpf_htons(ETH_P_ARP):
		return answer_arp(skb, own);
	default:
		return drop(skb, own->network, DROP_NOT_IP);
	}
}

char LICENSE[] SEC("license") = "GPL";
