/* SPDX-License-Identifier: GPL-2.0 */
/* The last hop: a checked packet goes to a pod of this node, or through the tunnel to another.
 *
 * The time to live stays as it is. The gateway between two pods exists only in the answers of
 * arp.h, a packet passes it at most once and cannot loop, and two pods of a network that speak
 * with a time to live of one (routing daemons do) must reach each other wherever they are. */
#pragma once

#include "address.h"
#include "drops.h"
#include "packet.h"

#define PACKET_HOST 0
#define TUNNEL_TTL 64

/* Set by the loader. */
volatile const __u32 OVERLAY_IFINDEX = 0;
volatile const __u32 UNDERLAY_IPV4 = 0; /* host byte order */
volatile const __u32 POD_MTU = 0;

static __always_inline void address_frame(struct ethhdr *eth, const struct endpoint *to)
{
	copy_mac(eth->h_dest, to->mac);
	copy_gateway_mac(eth->h_source);
}

/* Straight into the pod's namespace. The frame was not addressed to this host, and older kernels
 * keep that mark across the redirect, where the pod's stack would drop it. */
static __always_inline int deliver_here(struct __sk_buff *skb, struct ethhdr *eth,
					const struct endpoint *to)
{
	address_frame(eth, to);
	bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(to->ifindex, 0);
}

/* A batch is cut to its sender's segment size after this, so only a single packet can be too
 * big. Without the check the tunnel would fragment silently. */
static __always_inline bool fits_tunnel(struct __sk_buff *skb)
{
	return skb->gso_size || skb->len <= POD_MTU + ETH_HLEN;
}

static __always_inline int deliver_there(struct __sk_buff *skb, struct ethhdr *eth, __u32 network,
					 const struct endpoint *to)
{
	struct bpf_tunnel_key key = {
		.tunnel_id = network,
		.remote_ipv4 = bpf_ntohl(ipv4_of(&to->node)),
		.local_ipv4 = UNDERLAY_IPV4,
		.tunnel_ttl = TUNNEL_TTL,
	};

	if (!fits_tunnel(skb))
		return drop(skb, network, DROP_TOO_BIG);
	address_frame(eth, to);
	if (bpf_skb_set_tunnel_key(skb, &key, sizeof(key),
				   BPF_F_ZERO_CSUM_TX | BPF_F_DONT_FRAGMENT))
		return drop(skb, network, DROP_KERNEL_REFUSED);
	return bpf_redirect(OVERLAY_IFINDEX, 0);
}
