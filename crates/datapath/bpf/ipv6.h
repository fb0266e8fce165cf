/* SPDX-License-Identifier: GPL-2.0 */
/* IPv6 headers: whether they make sense, and whether they try to choose the route. */
#pragma once

#include <linux/ipv6.h>
#include <stdbool.h>

#include "address.h"
#include "packet.h"

#define IPV6_HOP_BY_HOP 0
#define IPV6_ROUTING 43
#define IPV6_FRAGMENT 44
#define IPV6_AUTHENTICATION 51
#define IPV6_ICMP 58
#define IPV6_DESTINATION 60
#define IPV6_EXTENSIONS_MAX 8
#define IPV6_FRAGMENT_SIZE 8
#define IPV6_FRAME (ETH_HLEN + sizeof(struct ipv6hdr))

static __always_inline struct ipv6hdr *ipv6_header(struct ethhdr *eth)
{
	return (void *)eth + ETH_HLEN;
}

static __always_inline struct address ipv6_address(const struct in6_addr *ip)
{
	const __be32 *words = (const void *)ip;

	return (struct address){ .words = { words[0], words[1], words[2], words[3] } };
}

static __always_inline bool is_group_ipv6(const struct address *ip)
{
	return (bpf_ntohl(ip->words[0]) >> 24) == 0xff;
}

/* The maps keep IPv4 addresses in this range. On the wire it has no place, and a packet that used
 * it would pass for IPv4. */
static __always_inline bool is_mapped(const struct address *ip)
{
	return ip->words[0] == 0 && ip->words[1] == 0 && ip->words[2] == bpf_htonl(0xffff);
}

static __always_inline bool is_extension(__u8 header)
{
	return header == IPV6_HOP_BY_HOP || header == IPV6_ROUTING || header == IPV6_FRAGMENT ||
	       header == IPV6_AUTHENTICATION || header == IPV6_DESTINATION;
}

struct fragment_header {
	__u8 next;
	__u8 reserved;
	__be16 place; /* the offset in its upper thirteen bits, and whether more follow */
	__be32 id;
};

/* A walk over the extension headers of one packet. */
struct extension_walk {
	struct __sk_buff *skb;
	__u32 at;
	__u32 header;
	verdict judged;
	__be32 id; /* of the datagram, if it comes in fragments */
	__u32 offset;
	__u32 more;
};

static __always_inline __u32 extension_size(__u8 header, __u8 length)
{
	if (header == IPV6_FRAGMENT)
		return 8;
	if (header == IPV6_AUTHENTICATION)
		return (length + 2) * 4;
	return (length + 1) * 8;
}

/* One extension header; says whether the walk is over. */
static long follow_extension(__u32 index __attribute__((unused)), void *context)
{
	struct extension_walk *walk = context;
	struct fragment_header start = {};

	walk->judged = FINE;
	if (!is_extension(walk->header))
		return 1;
	walk->judged = DROP_SOURCE_ROUTED;
	if (walk->header == IPV6_ROUTING)
		return 1;
	walk->judged = DROP_MALFORMED;
	if (bpf_skb_load_bytes(walk->skb, walk->at, &start, sizeof(start)))
		return 1;
	walk->at += extension_size(walk->header, start.reserved);
	if (walk->header == IPV6_FRAGMENT) {
		walk->id = start.id;
		walk->offset = bpf_ntohs(start.place) & 0xfff8;
		walk->more = bpf_ntohs(start.place) & 1;
		/* What is parted begins with its protocol: nobody parts what is a part already, and what
		 * the first part has is counted from there. */
		if (!walk->offset && is_extension(start.next))
			return 1;
	}
	walk->header = start.next;
	/* What follows a later fragment's header is payload. */
	if (walk->offset)
		walk->judged = FINE;
	return walk->offset != 0;
}

/* Leads to the first header that is no extension. More headers than we follow are as wrong as one
 * that is cut off. */
static __always_inline verdict walk_extensions(struct extension_walk *walk)
{
	bpf_loop(IPV6_EXTENSIONS_MAX, follow_extension, walk, 0);
	return walk->judged;
}

static __always_inline verdict check_ipv6(struct __sk_buff *skb, const struct ipv6hdr *ip,
					  const struct address *source,
					  const struct address *destination)
{
	if (ip->version != 6 || bpf_ntohs(ip->payload_len) + IPV6_FRAME > skb->len)
		return DROP_MALFORMED;
	return is_mapped(source) || is_mapped(destination) ? DROP_MALFORMED : FINE;
}

/* Neighbour discovery believes a message only if its hop limit is 255: that it comes from this very
 * link. What passes the gateway does not, however deep a pod hid the message. */
static __always_inline void leave_link(struct ipv6hdr *ip)
{
	if (ip->hop_limit == 255)
		ip->hop_limit = 254;
}
