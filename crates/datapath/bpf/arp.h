/* SPDX-License-Identifier: GPL-2.0 */
/* The gateway's voice. A pod's every question for an address is answered with the gateway's MAC,
 * here, without anyone else hearing it; no other ARP message goes anywhere. */
#pragma once

#include "address.h"
#include "drops.h"
#include "packet.h"
#include "source.h"

#define ARP_ETHERNET 1
#define ARP_REQUEST 1
#define ARP_REPLY 2

/* linux/if_arp.h would bring in the C library. */
struct arp_ipv4 {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_size;
	__u8 protocol_size;
	__be16 operation;
	__u8 sender_mac[6];
	__be32 sender_ip;
	__u8 target_mac[6];
	__be32 target_ip;
} __attribute__((packed));

struct arp_frame {
	struct ethhdr eth;
	struct arp_ipv4 arp;
} __attribute__((packed));

static __always_inline bool is_ipv4_question(const struct arp_ipv4 *arp)
{
	return arp->hardware == bpf_htons(ARP_ETHERNET) && arp->protocol == bpf_htons(ETH_P_IP) &&
	       arp->hardware_size == 6 && arp->protocol_size == 4 &&
	       arp->operation == bpf_htons(ARP_REQUEST);
}

/* A question for one of the pod's own addresses is an announcement or a search for duplicates.
 * An answer to it would say that someone else has the address. */
static __always_inline verdict check_arp(const struct interface *own, const struct arp_ipv4 *arp)
{
	struct address sender = ipv4_mapped(arp->sender_ip);
	struct address target = ipv4_mapped(arp->target_ip);

	if (!same_mac(arp->sender_mac, own->mac) || !has_source(own, &sender))
		return DROP_SPOOFED_ARP;
	if (!is_ipv4_question(arp) || has_source(own, &target))
		return DROP_UNWANTED_ARP;
	return FINE;
}

static __always_inline void turn_into_answer(struct arp_frame *frame)
{
	__be32 asked = frame->arp.target_ip;

	copy_mac(frame->eth.h_dest, frame->arp.sender_mac);
	copy_gateway_mac(frame->eth.h_source);
	copy_mac(frame->arp.target_mac, frame->arp.sender_mac);
	copy_gateway_mac(frame->arp.sender_mac);
	frame->arp.operation = bpf_htons(ARP_REPLY);
	frame->arp.target_ip = frame->arp.sender_ip;
	frame->arp.sender_ip = asked;
}

static __always_inline int answer_arp(struct __sk_buff *skb, const struct interface *own)
{
	struct arp_frame *frame = frame_start(skb, sizeof(*frame));
	verdict judged;

	if (!frame)
		return drop(skb, own->network, DROP_MALFORMED);
	judged = check_arp(own, &frame->arp);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	turn_into_answer(frame);
	return bpf_redirect(skb->ifindex, 0);
}
