/* SPDX-License-Identifier: GPL-2.0 */
/* Other addresses and another port in a packet of TCP or UDP, with every checksum right, also one
 * that is still to be made by the one who sends it out. */
#pragma once

#include <stddef.h>

#include "checksum.h"
#include "flow.h"
#include "ipv4.h"
#include "ipv6.h"

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

/* What takes the place of one end of a packet. */
struct new_end {
	struct address address;
	__be16 port;
	__u16 is_source; /* else the destination */
};

/* Whether a packet has its ports right behind the shortest header of IP. */
static __always_inline bool is_plain(const struct flow *flow)
{
	return has_ports(&flow->transport) &&
	       flow->transport.at == (is_mapped(&flow->source) ? IPV4_FRAME : IPV6_FRAME);
}

/* By how much a sum changes when one of its words does. */
static __always_inline __u32 difference(__be32 was, __be32 is)
{
	__u64 sum = (__u64)(__u32)~was + is;

	return (__u32)sum + (__u32)(sum >> 32);
}

/* The port alone, whose part of the checksum is left to be made where the rest is. The words of the
 * header must be at hand. */
static __always_inline long move_port(struct __sk_buff *skb, const struct transport *t, __u32 at,
				      const struct new_end *to)
{
	__be16 was = to->is_source ? t->source_port : t->destination_port;
	__be16 *port;

	if (was == to->port)
		return 0;
	if (renew_checksum(skb, t, difference(was, to->port), 0))
		return -1;
	port = linear_start(skb) + at + (to->is_source ? 0 : sizeof(*port));
	if ((void *)(port + 1) > linear_end(skb))
		return -1;
	*port = to->port;
	return 0;
}

static __always_inline long move_end_ipv4(struct __sk_buff *skb, const struct flow *flow,
					  const struct new_end *to)
{
	__be32 was = ipv4_of(to->is_source ? &flow->source : &flow->destination);
	__be32 is = ipv4_of(&to->address);
	struct iphdr *ip;

	if (move_port(skb, &flow->transport, IPV4_FRAME, to) ||
	    renew_checksum(skb, &flow->transport, difference(was, is), BPF_F_PSEUDO_HDR))
		return -1;
	ip = linear_start(skb) + ETH_HLEN;
	if ((void *)(ip + 1) > linear_end(skb))
		return -1;
	ip->check = fold((__u64)(__u16)~ip->check + (__u32)~was + is);
	if (to->is_source)
		ip->saddr = is;
	else
		ip->daddr = is;
	return 0;
}

static __always_inline long move_end_ipv6(struct __sk_buff *skb, const struct flow *flow,
					  const struct new_end *to)
{
	const struct address *was = to->is_source ? &flow->source : &flow->destination;
	__s64 change = bpf_csum_diff((void *)was, sizeof(*was), (void *)&to->address,
				     sizeof(to->address), 0);
	struct ipv6hdr *ip;

	if (move_port(skb, &flow->transport, IPV6_FRAME, to) ||
	    renew_checksum(skb, &flow->transport, change, BPF_F_PSEUDO_HDR))
		return -1;
	ip = linear_start(skb) + ETH_HLEN;
	if ((void *)(ip + 1) > linear_end(skb))
		return -1;
	if (to->is_source)
		__builtin_memcpy(&ip->saddr, &to->address, sizeof(ip->saddr));
	else
		__builtin_memcpy(&ip->daddr, &to->address, sizeof(ip->daddr));
	return 0;
}

/* A plain packet gets another end, in place. Nothing, or an error. */
static __always_inline long move_end(struct __sk_buff *skb, const struct flow *flow,
				     const struct new_end *to)
{
	return is_mapped(&flow->source) ? move_end_ipv4(skb, flow, to) :
					  move_end_ipv6(skb, flow, to);
}
