/* SPDX-License-Identifier: GPL-2.0 */
/* Errors of ICMP and ICMPv6, and the packet that one quotes. */
#pragma once

#include "flow.h"

#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
#define ICMPV6_UNREACHABLE 1
#define ICMPV6_PARAMETER_PROBLEM 4

/* The connection that an error message quotes: a packet that its receiver sent. */
static __always_inline verdict read_quote_ipv4(struct __sk_buff *skb, const struct flow *flow,
					       struct flow *quoted)
{
	__u32 at = flow->transport.at + sizeof(struct icmp_header);
	struct iphdr ip = {};

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version != 4)
		return DROP_UNRELATED_ICMP;
	quoted->source = ipv4_mapped(ip.saddr);
	quoted->destination = ipv4_mapped(ip.daddr);
	quoted->transport.protocol = ip.protocol;
	quoted->transport.at = at + ip.ihl * 4;
	return ip.frag_off & bpf_htons(IPV4_OFFSET_BITS) ? DROP_UNRELATED_ICMP : FINE;
}

static __always_inline verdict read_quote_ipv6(struct __sk_buff *skb, const struct flow *flow,
					       struct flow *quoted)
{
	__u32 at = flow->transport.at + sizeof(struct icmp_header);
	struct ipv6hdr ip = {};
	__u8 fragment[4];

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version != 6)
		return DROP_UNRELATED_ICMP;
	quoted->source = ipv6_address(&ip.saddr);
	quoted->destination = ipv6_address(&ip.daddr);
	quoted->transport.protocol = ip.nexthdr;
	quoted->transport.at = at + sizeof(ip);
	if (ip.nexthdr != IPV6_FRAGMENT)
		return FINE;
	if (bpf_skb_load_bytes(skb, quoted->transport.at, fragment, sizeof(fragment)) ||
	    fragment[2] || fragment[3] & 0xf8)
		return DROP_UNRELATED_ICMP;
	quoted->transport.protocol = fragment[0];
	quoted->transport.at += IPV6_FRAGMENT_SIZE;
	return FINE;
}

static __always_inline bool read_quoted_ports(struct __sk_buff *skb, struct transport *quoted)
{
	struct icmp_header start;

	if (bpf_skb_load_bytes(skb, quoted->at, &start, sizeof(start)))
		return false;
	if (is_icmp(quoted->protocol))
		return read_icmp(quoted, &start) == FINE;
	quoted->source_port = ((__be16 *)&start)[0];
	quoted->destination_port = ((__be16 *)&start)[1];
	return true;
}

static __always_inline bool is_error(const struct transport *t)
{
	if (t->protocol == ICMP_PROTOCOL)
		return t->signs == ICMP_UNREACHABLE || t->signs == ICMP_TIME_EXCEEDED ||
		       t->signs == ICMP_PARAMETER_PROBLEM;
	return t->protocol == IPV6_ICMP && t->signs >= ICMPV6_UNREACHABLE &&
	       t->signs <= ICMPV6_PARAMETER_PROBLEM;
}

/* Whether the packet is an error, and whole: what it quotes can be told. */
static __always_inline bool is_whole_error(const struct transport *t)
{
	return t->part == PART_WHOLE && is_icmp(t->protocol) && is_error(t);
}
