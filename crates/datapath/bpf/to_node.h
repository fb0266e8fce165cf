/* SPDX-License-Identifier: GPL-2.0 */
/* The last hop of what goes into the node's own stack: it comes out of the node's link, where the stack
 * knows the aliases of pods' interfaces and nobody else. */
#pragma once

#include <linux/if_ether.h>

#include "abi.h"
#include "constants.h"

static __noinline int to_node(struct __sk_buff *skb)
{
	const struct {
		__u8 to[ETH_ALEN], from[ETH_ALEN];
	} macs = { .to = NODE_MAC, .from = GATEWAY_MAC };

	bpf_skb_store_bytes(skb, 0, &macs, sizeof(macs), 0);
	return bpf_redirect(NODE_IFINDEX, BPF_F_INGRESS);
}
