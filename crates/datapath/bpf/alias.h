/* SPDX-License-Identifier: GPL-2.0 */
/* The alias of an interface on the node's link, and the addresses behind the doors. */
#pragma once

#include "address.h"
#include "ipv6.h"
#include "maps.h"

static __always_inline __be32 alias_ipv4(__u32 ifindex)
{
	return bpf_htonl(ALIAS_IPV4 | (ifindex & ALIAS_IPV4_MASK));
}

static __always_inline struct address alias_ipv6(__u32 ifindex)
{
	const __u32 range[4] = ALIAS_IPV6;

	return (struct address){ .words = { bpf_htonl(range[0]), bpf_htonl(range[1]), 0,
					    bpf_htonl(ifindex) } };
}

/* The interface whose alias this is, or 0. */
static __always_inline __u32 aliased_ipv4(__be32 ip)
{
	__u32 bits = bpf_ntohl(ip);

	return (bits & ~ALIAS_IPV4_MASK) == ALIAS_IPV4 ? bits & ALIAS_IPV4_MASK : 0;
}

static __always_inline __u32 aliased_ipv6(const struct address *ip)
{
	const __u32 range[4] = ALIAS_IPV6;

	if (ip->words[0] != bpf_htonl(range[0]) || ip->words[1] != bpf_htonl(range[1]) ||
	    ip->words[2])
		return 0;
	return bpf_ntohl(ip->words[3]);
}

static __always_inline __be32 behind_door_ipv4(__u32 door)
{
	return bpf_htonl(DOOR_IPV4 + door);
}

static __always_inline struct address behind_door_ipv6(__u32 door)
{
	const __u32 first[4] = DOOR_IPV6;

	return (struct address){ .words = { bpf_htonl(first[0]), bpf_htonl(first[1]), 0,
					    bpf_htonl(first[3] + door) } };
}

/* The door that this address of the node's link is behind; a number that no door has if none. */
static __always_inline __u32 door_behind_ipv6(const struct address *ip)
{
	struct address first = behind_door_ipv6(0);
	__u32 door = bpf_ntohl(ip->words[3]) - bpf_ntohl(first.words[3]);

	first.words[3] = ip->words[3];
	return same_address(&first, ip) ? door : 0xffffffff;
}

/* Where the pods of a network find the agent, or NULL. */
static __always_inline struct doors *doors_of(__u32 network)
{
	struct door_key key = { .network = network };

	return bpf_map_lookup_elem(&doors, &key);
}

/* The one address of a family by which an interface is known at the node's link: its first. */
static __always_inline const struct address *first_source(const struct interface *own, bool ipv6)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < MAX_SOURCES; i++) {
		if (i >= own->source_count)
			return NULL;
		if (is_mapped(&own->sources[i]) != ipv6)
			return &own->sources[i];
	}
	return NULL;
}
