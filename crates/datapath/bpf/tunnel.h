/* SPDX-License-Identifier: GPL-2.0 */
/* The hop to another node: a checked packet goes into the tunnel with its network's number. */
#pragma once

#include "constants.h"
#include "deliver.h"

#define TUNNEL_TTL 64

static __always_inline int deliver_there(struct __sk_buff *skb, struct ethhdr *eth, __u32 network,
					 const struct endpoint *to)
{
	struct bpf_tunnel_key key = {
		.tunnel_id = network,
		.remote_ipv4 = bpf_ntohl(ipv4_of(&to->node)),
		.local_ipv4 = UNDERLAY_IPV4,
		.tunnel_ttl = TUNNEL_TTL,
	};

	address_frame(eth, to);
	if (bpf_skb_set_tunnel_key(skb, &key, sizeof(key),
				   BPF_F_ZERO_CSUM_TX | BPF_F_DONT_FRAGMENT))
		return drop(skb, network, DROP_KERNEL_REFUSED);
	return bpf_redirect(OVERLAY_IFINDEX, 0);
}
