/* SPDX-License-Identifier: GPL-2.0 */
/* IPv4 headers: whether they make sense, and whether they try to choose the route. */
#pragma once

#include <linux/ip.h>
#include <stdbool.h>

#include "packet.h"

#define IPV4_OPTION_END 0
#define IPV4_OPTION_NOP 1
#define IPV4_OPTION_LOOSE_ROUTE 131
#define IPV4_OPTION_STRICT_ROUTE 137
#define IPV4_OPTIONS_MAX 40
#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_OFFSET_BITS 0x1fff /* in units of eight bytes */
#define IPV4_FRAGMENT_BITS (IPV4_MORE_FRAGMENTS | IPV4_OFFSET_BITS)
#define IPV4_FRAME (ETH_HLEN + sizeof(struct iphdr))

static __always_inline struct iphdr *ipv4_header(struct ethhdr *eth)
{
	return (void *)eth + ETH_HLEN;
}

static __always_inline bool is_source_route(__u8 option)
{
	return option == IPV4_OPTION_LOOSE_ROUTE || option == IPV4_OPTION_STRICT_ROUTE;
}

/* A length that leads outside of the options is as wrong as a source route. */
static __always_inline verdict judge_option(const __u8 option[2], __u32 left)
{
	if (option[0] == IPV4_OPTION_NOP)
		return FINE;
	if (is_source_route(option[0]))
		return DROP_SOURCE_ROUTED;
	return option[1] < 2 || option[1] > left ? DROP_MALFORMED : FINE;
}

/* A walk over the options of one header. */
struct option_walk {
	struct __sk_buff *skb;
	__u32 at;
	__u32 size;
	verdict judged;
};

/* One option; says whether the walk is over. */
static long check_ipv4_option(__u32 index __attribute__((unused)), void *context)
{
	struct option_walk *walk = context;
	__u8 option[2] = {};

	if (walk->at >= walk->size)
		return 1;
	/* Its kind, and its length where the header has room for one. */
	if (bpf_skb_load_bytes(walk->skb, IPV4_FRAME + walk->at, option,
			       walk->at + 1 < walk->size ? 2 : 1)) {
		walk->judged = DROP_MALFORMED;
		return 1;
	}
	if (option[0] == IPV4_OPTION_END)
		return 1;
	walk->judged = judge_option(option, walk->size - walk->at);
	walk->at += option[0] == IPV4_OPTION_NOP ? 1 : option[1];
	return walk->judged != FINE;
}

static __noinline verdict check_ipv4_options(struct __sk_buff *skb, __u32 size)
{
	struct option_walk walk = { .skb = skb, .size = size, .judged = FINE };

	bpf_loop(IPV4_OPTIONS_MAX, check_ipv4_option, &walk, 0);
	return walk.judged;
}

static __always_inline verdict check_ipv4(struct __sk_buff *skb, const struct iphdr *ip)
{
	__u32 header = ip->ihl * 4;
	__u32 total = bpf_ntohs(ip->tot_len);

	if (ip->version != 4 || header < sizeof(*ip))
		return DROP_MALFORMED;
	if (total < header || total + ETH_HLEN > skb->len)
		return DROP_MALFORMED;
	if (header > sizeof(*ip))
		return check_ipv4_options(skb, header - sizeof(*ip));
	return FINE;
}
