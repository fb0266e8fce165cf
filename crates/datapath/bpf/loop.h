/* SPDX-License-Identifier: GPL-2.0 */
/* What a pod sends to an address that this very node answers for, with a face of this node, and what
 * comes back. No wire leads there: the packet goes in again at the uplink, as if it came from outside.
 *
 * The rules: such a frame is from the gateway to the gateway, which no link here is. So the node's own
 * stack takes none of it, whatever from_uplink leaves to it. An end of a connection that is reached so
 * has the index of the loopback, by which nobody is reached otherwise. */
#pragma once

#include <linux/if_ether.h>

#include "abi.h"
#include "address.h"
#include "constants.h"

/* Of the loopback, in every namespace. */
#define LOOP_IFINDEX 1

static __noinline int loop(struct __sk_buff *skb)
{
	const struct {
		__u8 to[ETH_ALEN], from[ETH_ALEN];
	} macs = { .to = GATEWAY_MAC, .from = GATEWAY_MAC };

	bpf_skb_store_bytes(skb, 0, &macs, sizeof(macs), 0);
	return bpf_redirect(UPLINK_IFINDEX, BPF_F_INGRESS);
}

static __always_inline bool is_looped(const struct ethhdr *eth)
{
	const __u8 gateway[ETH_ALEN] = GATEWAY_MAC;

	return same_mac(eth->h_dest, gateway) && same_mac(eth->h_source, gateway);
}
