// SPDX-License-Identifier: GPL-2.0
/* Attached to the node's tunnel device: what other nodes send comes here first.
 *
 * The rule: only known nodes are heard, each only for the pods that live on it, and no packet ever
 * reaches the node's own network stack.
 *
 * A pod that moves to another node is heard from there as soon as this node has learned of the
 * move. Until then its packets are dropped; their answers would go to the old node anyway, so a
 * conversation loses nothing by it, and a node that was taken over can speak for nobody else's
 * pods. */
#include "address.h"
#include "constants.h"
#include "deliver.h"
#include "drops.h"
#include "ipv4.h"
#include "ipv6.h"
#include "maps.h"

static __always_inline struct endpoint *endpoint_of(__u32 network, const struct address *ip)
{
	struct endpoint_key key = { .network = network, .address = *ip };

	return bpf_map_lookup_elem(&endpoints, &key);
}

static __always_inline bool lives_on(const struct endpoint *endpoint, const struct address *node)
{
	return endpoint && !endpoint->ifindex && same_address(&endpoint->node, node);
}

static __always_inline int hand_over(struct __sk_buff *skb, struct ethhdr *eth, __u32 network,
				     const struct address *node, const struct address *source,
				     const struct address *destination)
{
	struct endpoint *to;

	if (!lives_on(endpoint_of(network, source), node))
		return drop(skb, network, DROP_OVERLAY_SPOOF);
	to = endpoint_of(network, destination);
	if (!to || !to->ifindex)
		return drop(skb, network, DROP_NO_ENDPOINT);
	return deliver_here(skb, eth, to);
}

static __always_inline int ipv4_from_overlay(struct __sk_buff *skb, __u32 network,
					     const struct address *node)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	struct address source, destination;
	struct iphdr *ip;
	verdict judged;

	if (!eth)
		return drop(skb, network, DROP_MALFORMED);
	ip = ipv4_header(eth);
	judged = check_ipv4(skb, ip);
	if (judged != FINE)
		return drop(skb, network, judged);
	source = ipv4_mapped(ip->saddr);
	destination = ipv4_mapped(ip->daddr);
	return hand_over(skb, eth, network, node, &source, &destination);
}

static __always_inline int ipv6_from_overlay(struct __sk_buff *skb, __u32 network,
					     const struct address *node)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	struct address source, destination;
	struct ipv6hdr *ip;
	verdict judged;

	if (!eth)
		return drop(skb, network, DROP_MALFORMED);
	ip = ipv6_header(eth);
	source = ipv6_address(&ip->saddr);
	destination = ipv6_address(&ip->daddr);
	judged = check_ipv6(skb, ip, &source, &destination);
	if (judged != FINE)
		return drop(skb, network, judged);
	leave_link(ip);
	return hand_over(skb, eth, network, node, &source, &destination);
}

static __always_inline __u64 tunnel_family(void)
{
	return UNDERLAY_IPV4 ? 0 : BPF_F_TUNINFO_IPV6;
}

static __always_inline struct address sender_of(const struct bpf_tunnel_key *tunnel)
{
	const __u32 *ip = tunnel->remote_ipv6;

	if (UNDERLAY_IPV4)
		return ipv4_mapped(bpf_htonl(tunnel->remote_ipv4));
	return (struct address){ .words = { ip[0], ip[1], ip[2], ip[3] } };
}

SEC("classifier")
int from_overlay(struct __sk_buff *skb)
{
	struct bpf_tunnel_key tunnel = {};
	struct peer_key node;
	struct ethhdr *eth;

	/* Fails for packets that came through no tunnel, or through one of the other family. */
	if (bpf_skb_get_tunnel_key(skb, &tunnel, sizeof(tunnel), tunnel_family()))
		return drop(skb, NO_NETWORK, DROP_OVERLAY_STRANGER);
	node.address = sender_of(&tunnel);
	if (!bpf_map_lookup_elem(&peers, &node))
		return drop(skb, NO_NETWORK, DROP_OVERLAY_STRANGER);
	if (skb->vlan_present)
		return drop(skb, tunnel.tunnel_id, DROP_VLAN_TAGGED);
	eth = frame_start(skb, sizeof(*eth));
	if (!eth)
		return drop(skb, tunnel.tunnel_id, DROP_MALFORMED);
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		return ipv4_from_overlay(skb, tunnel.tunnel_id, &node.address);
	case bpf_htons(ETH_P_IPV6):
		return ipv6_from_overlay(skb, tunnel.tunnel_id, &node.address);
	default:
		return drop(skb, tunnel.tunnel_id, DROP_NOT_IP);
	}
}

char LICENSE[] SEC("license") = "GPL";
