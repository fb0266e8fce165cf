/* SPDX-License-Identifier: GPL-2.0 */
/* The last hop: a checked packet goes to a pod of this node.
 *
 * The time to live stays as it is. The gateway between two pods exists only in the answers of
 * arp.h and nd.h, a packet passes it at most once and cannot loop, and two pods of a network that
 * speak with a time to live of one (routing daemons do) must reach each other wherever they are.
 * So traceroute shows the other pod as the first hop. */
#pragma once

#include "address.h"
#include "drops.h"
#include "packet.h"

#define PACKET_HOST 0
#define PACKET_OTHERHOST 3

/* By words: a place has its MAC at a multiple of four, and a frame may be written anywhere. */
static __always_inline void address_frame(struct ethhdr *eth, const struct place *to)
{
	const __u8 gateway[6] __attribute__((aligned(4))) = GATEWAY_MAC;
	void *receiver = eth->h_dest, *sender = eth->h_source;

	*(__u32 *)receiver = *(const __u32 *)to->mac;
	*(__u16 *)(receiver + 4) = *(const __u16 *)(to->mac + 4);
	*(__u32 *)sender = *(const __u32 *)gateway;
	*(__u16 *)(sender + 4) = *(const __u16 *)(gateway + 4);
}

/* Straight into the pod's namespace. The frame was not addressed to this host, and older kernels
 * keep that mark across the redirect, where the pod's stack would drop it. */
static __always_inline int deliver_here(struct __sk_buff *skb, struct ethhdr *eth,
					const struct place *to)
{
	address_frame(eth, to);
	count_received(skb, to->slot);
	bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(to->ifindex, 0);
}
