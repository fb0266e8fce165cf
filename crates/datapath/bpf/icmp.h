/* SPDX-License-Identifier: GPL-2.0 */
/* ICMP and ICMPv6 messages that we answer or write ourselves. */
#pragma once

#include "address.h"
#include "checksum.h"
#include "ipv4.h"
#include "ipv6.h"

#define ICMP_PROTOCOL 1
#define ICMP_UNREACHABLE 3
#define ICMP_FRAGMENTATION_NEEDED 4
#define ICMP_ECHO 8
#define ICMP_ECHO_REPLY 0

#define ICMPV6_TOO_BIG 2
#define ICMPV6_ECHO 128
#define ICMPV6_ECHO_REPLY 129
#define ICMPV6_ROUTER_SOLICITATION 133
#define ICMPV6_SOLICITATION 135
#define ICMPV6_ADVERTISEMENT 136
#define ICMPV6_REDIRECT 137

#define GATEWAY_HOPS 64

struct icmp_header {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__be32 rest;
};

/* What an ICMPv6 checksum covers beside the message. */
struct pseudo_header {
	struct address source;
	struct address destination;
	__be32 length;
	__be32 next_header;
};

static __always_inline __u32 pseudo_sum(const struct pseudo_header *pseudo)
{
	return add_up(pseudo, sizeof(*pseudo), 0);
}

static __always_inline __be32 gateway_ipv4(void)
{
	const __u8 bytes[4] __attribute__((aligned(4))) = GATEWAY_IPV4;

	return *(const __be32 *)bytes;
}

static __always_inline struct address gateway_ipv6(void)
{
	const __u8 bytes[16] __attribute__((aligned(4))) = GATEWAY_IPV6;

	return ipv6_address((const void *)bytes);
}

/* The gateway in the family of `ip`. */
static __always_inline struct address gateway_like(const struct address *ip)
{
	return is_mapped(ip) ? ipv4_mapped(gateway_ipv4()) : gateway_ipv6();
}

/* A frame from the gateway to the pod behind `own`. */
static __always_inline void address_to_pod(struct ethhdr *eth, const struct interface *own,
					   __be16 protocol)
{
	copy_mac(eth->h_dest, own->mac);
	copy_gateway_mac(eth->h_source);
	eth->h_proto = protocol;
}
