// SPDX-License-Identifier: GPL-2.0
/* Attached to the host side of every pod's interface: what leaves a pod comes here first.
 *
 * The rule: a frame is exactly the pod's own or it is dropped, and no frame ever reaches the
 * node's own network stack. */
#include "address.h"
#include "arp.h"
#include "deliver.h"
#include "drops.h"
#include "maps.h"
#include "packet.h"

static __always_inline int forward(struct __sk_buff *skb, struct ethhdr *eth, __u32 network,
				   const struct address *destination)
{
	struct endpoint_key key = { .network = network, .address = *destination };
	struct endpoint *to = bpf_map_lookup_elem(&endpoints, &key);

	if (!to)
		return drop(skb, network, DROP_NO_ENDPOINT);
	if (to->ifindex)
		return deliver_here(skb, eth, to);
	return deliver_there(skb, eth, network, to);
}

static __always_inline verdict check_ipv4_from(struct __sk_buff *skb, const struct interface *own,
					       const struct ethhdr *eth,
					       const struct iphdr *ip)
{
	struct address source = ipv4_mapped(ip->saddr);

	if (!has_source(own, &source))
		return DROP_SPOOFED_ADDRESS;
	if (is_group_mac(eth->h_dest) || is_group_ipv4(ip->daddr))
		return DROP_MULTICAST;
	return check_ipv4(skb, ip);
}

static __always_inline int ipv4_from_pod(struct __sk_buff *skb, const struct interface *own)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	struct address destination;
	verdict judged;

	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	judged = check_ipv4_from(skb, own, eth, ipv4_header(eth));
	if (judged != FINE)
		return drop(skb, own->network, judged);
	destination = ipv4_mapped(ipv4_header(eth)->daddr);
	return forward(skb, eth, own->network, &destination);
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
	case bpf_htons(ETH_P_ARP):
		return answer_arp(skb, own);
	case bpf_htons(ETH_P_IPV6):
		return drop(skb, own->network, DROP_IPV6_NOT_SERVED);
	default:
		return drop(skb, own->network, DROP_NOT_IP);
	}
}

char LICENSE[] SEC("license") = "GPL";
