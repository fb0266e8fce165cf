/* SPDX-License-Identifier: GPL-2.0 */
/* Other addresses and another port in a packet of TCP or UDP, with every checksum right, also one
 * that is still to be made by the one who sends it out. */
#pragma once

#include <stddef.h>

#include "ipv4.h"
#include "ipv6.h"
#include "transport.h"

#define TCP_CHECKSUM 16
#define UDP_CHECKSUM 6

struct ports {
	__be16 source, destination;
};

/* Whether the ports of a packet can be told and changed: it is a whole one of TCP or UDP. */
static __always_inline bool has_ports(const struct transport *t)
{
	return t->part == PART_WHOLE &&
	       (t->protocol == TCP_PROTOCOL || t->protocol == UDP_PROTOCOL);
}

/* Whether a packet can be to a service: its ports can be told and changed. SCTP's checksum of a
 * datagram in parts cannot. */
static __always_inline bool can_be_served(const struct transport *t)
{
	if (t->protocol == SCTP_PROTOCOL)
		return t->part == PART_WHOLE;
	return t->protocol == TCP_PROTOCOL || t->protocol == UDP_PROTOCOL;
}

/* A checksum of zero means none in UDP over IPv4, and stays so. SCTP's covers no addresses, and a
 * later part of a datagram has none. */
static __always_inline long renew_checksum(struct __sk_buff *skb, const struct transport *was,
					   __s64 change, __u64 flags)
{
	if (was->part == PART_LATER || was->protocol == SCTP_PROTOCOL)
		return 0;
	if (was->protocol == UDP_PROTOCOL)
		return bpf_l4_csum_replace(skb, was->at + UDP_CHECKSUM, 0, change,
					   flags | BPF_F_MARK_MANGLED_0);
	return bpf_l4_csum_replace(skb, was->at + TCP_CHECKSUM, 0, change, flags);
}

static __always_inline long translate_ports(struct __sk_buff *skb, const struct transport *was,
					    const struct ports *is)
{
	const struct ports old = { .source = was->source_port,
				   .destination = was->destination_port };
	__s64 change = bpf_csum_diff((void *)&old, sizeof(old), (void *)is, sizeof(*is), 0);

	return renew_checksum(skb, was, change, 0) ||
	       bpf_skb_store_bytes(skb, was->at, is, sizeof(*is), 0);
}

/* Source and destination as they lie side by side in a header. */
struct ipv4_ends {
	__be32 source, destination;
};

static __always_inline long translate_ipv4(struct __sk_buff *skb, const struct ipv4_ends *was,
					   const struct ipv4_ends *is, const struct transport *over)
{
	__s64 change = bpf_csum_diff((void *)was, sizeof(*was), (void *)is, sizeof(*is), 0);

	return renew_checksum(skb, over, change, BPF_F_PSEUDO_HDR) ||
	       bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), 0, change, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, saddr), is, sizeof(*is),
				   0);
}

struct ipv6_ends {
	struct address source, destination;
};

static __always_inline long translate_ipv6(struct __sk_buff *skb, const struct ipv6_ends *was,
					   const struct ipv6_ends *is, const struct transport *over)
{
	__s64 change = bpf_csum_diff((void *)was, sizeof(*was), (void *)is, sizeof(*is), 0);

	return renew_checksum(skb, over, change, BPF_F_PSEUDO_HDR) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, saddr), is, sizeof(*is),
				   0);
}
