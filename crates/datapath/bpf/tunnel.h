/* SPDX-License-Identifier: GPL-2.0 */
/* The hop to another node: a checked packet goes into the tunnel with its network's number. */
#pragma once

#include "constants.h"
#include "deliver.h"

#define TUNNEL_TTL 64

/* A batch is cut into packets later; then these must fit. */
static __always_inline bool fits_tunnel(struct __sk_buff *skb)
{
	__u32 mtu = 0;

	if (skb->len <= POD_MTU + ETH_HLEN)
		return true;
	return skb->gso_size && !bpf_check_mtu(skb, OVERLAY_IFINDEX, &mtu, 0, BPF_MTU_CHK_SEGS);
}

/* Fills in both ends of the tunnel, in the family that the nodes meet over, and gives its flag. */
static __always_inline __u64 name_ends(struct bpf_tunnel_key *key, const struct address *node)
{
	if (UNDERLAY_IPV4) {
		key->remote_ipv4 = bpf_ntohl(ipv4_of(node));
		key->local_ipv4 = UNDERLAY_IPV4;
		return 0;
	}
	for (int word = 0; word < 4; word++) {
		key->remote_ipv6[word] = node->words[word];
		key->local_ipv6[word] = UNDERLAY_IPV6[word];
	}
	return BPF_F_TUNINFO_IPV6;
}

/* `parts` is BPF_F_DONT_FRAGMENT, or zero where the tunnel's own packet may be cut in parts, which the
 * other node puts together before anybody looks inside. */
static __always_inline int send_by_tunnel(struct __sk_buff *skb, struct ethhdr *eth, __u32 network,
					  const struct place *to, const struct address *node,
					  __u64 parts)
{
	struct bpf_tunnel_key key = {
		.tunnel_id = network,
		.tunnel_ttl = TUNNEL_TTL,
	};
	__u64 family = name_ends(&key, node);

	address_frame(eth, to);
	if (bpf_skb_set_tunnel_key(skb, &key, sizeof(key), family | BPF_F_ZERO_CSUM_TX | parts))
		return drop(skb, network, DROP_KERNEL_REFUSED);
	return bpf_redirect(OVERLAY_IFINDEX, 0);
}

static __always_inline int deliver_there(struct __sk_buff *skb, struct ethhdr *eth, __u32 network,
					 const struct place *to, const struct address *node)
{
	return send_by_tunnel(skb, eth, network, to, node, BPF_F_DONT_FRAGMENT);
}
