/* SPDX-License-Identifier: GPL-2.0 */
/* What is inside an IP packet: its protocol and ports, or which part of a datagram it is. Only
 * TCP, UDP, SCTP and ICMP are known; a packet of anything else could carry another packet whose
 * sender nobody checked. */
#pragma once

#include "icmp.h"

#define TCP_PROTOCOL 6
#define UDP_PROTOCOL 17
#define SCTP_PROTOCOL 132

#define TCP_HEADER 20
#define SCTP_HEADER 12
#define UDP_HEADER 8
#define TCP_FLAGS_AT 13
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define SCTP_INIT 1
#define SCTP_ABORT 6
#define SCTP_SHUTDOWN 7
#define SCTP_SHUTDOWN_COMPLETE 14

#define DATAGRAM_MAX 65535

enum part {
	PART_WHOLE,
	PART_FIRST,
	PART_LATER,
};

struct transport {
	__u32 at; /* where the header of the protocol begins in the frame */
	__be16 source_port; /* an echo has its id in that of who asks */
	__be16 destination_port;
	__be32 id; /* of the datagram, if it comes in fragments */
	__u32 offset; /* of this part in it */
	__u16 size; /* of this part */
	__u8 protocol;
	__u8 signs; /* TCP's flags, SCTP's first chunk, ICMP's type */
	__u32 part; /* enum part */
};

static __always_inline bool read_signs(struct __sk_buff *skb, __u32 at, struct transport *t)
{
	return !bpf_skb_load_bytes(skb, at, &t->signs, sizeof(t->signs));
}

/* What most packets have, where it is at hand. */
static __always_inline bool read_near_tcp(struct __sk_buff *skb, __u32 at, struct transport *t)
{
	void *start = linear_start(skb);

	if (start + at + TCP_FLAGS_AT + 1 > linear_end(skb))
		return false;
	t->source_port = *(const __be16 *)(start + at);
	t->destination_port = *(const __be16 *)(start + at + sizeof(__be16));
	t->signs = *(const __u8 *)(start + at + TCP_FLAGS_AT);
	return true;
}

/* The first eight bytes of a header, by words where they are at hand. */
static __always_inline bool read_start(struct __sk_buff *skb, __u32 at, struct icmp_header *to,
				       bool near)
{
	void *start = linear_start(skb);

	if (near && start + at + sizeof(*to) <= linear_end(skb)) {
		*to = *(const struct icmp_header *)(start + at);
		return true;
	}
	return !bpf_skb_load_bytes(skb, at, to, sizeof(*to));
}

static __always_inline __u32 header_size(__u8 protocol)
{
	if (protocol == TCP_PROTOCOL)
		return TCP_HEADER;
	return protocol == SCTP_PROTOCOL ? SCTP_HEADER : UDP_HEADER;
}

static __always_inline bool is_icmp(__u8 protocol)
{
	return protocol == ICMP_PROTOCOL || protocol == IPV6_ICMP;
}

static __always_inline bool is_known(__u8 protocol, bool ipv6)
{
	return protocol == TCP_PROTOCOL || protocol == UDP_PROTOCOL || protocol == SCTP_PROTOCOL ||
	       protocol == (ipv6 ? IPV6_ICMP : ICMP_PROTOCOL);
}

static __always_inline bool is_echo_reply(const struct transport *t)
{
	return t->signs == (t->protocol == ICMP_PROTOCOL ? ICMP_ECHO_REPLY : ICMPV6_ECHO_REPLY);
}

/* The id of an echo is the port of who asks, and who answers has none. So two that ask each other
 * with one id have a connection each. */
static __always_inline verdict read_icmp(struct transport *t, const struct icmp_header *icmp)
{
	t->signs = icmp->type;
	if (is_echo_reply(t))
		t->destination_port = (__be16)icmp->rest;
	else
		t->source_port = (__be16)icmp->rest;
	if (t->protocol == IPV6_ICMP && icmp->type >= ICMPV6_ROUTER_SOLICITATION &&
	    icmp->type <= ICMPV6_REDIRECT)
		return DROP_UNWANTED_ND;
	return FINE;
}

/* The header of the protocol, which a whole packet and a first fragment must have in full. */
static __always_inline verdict read_header(struct __sk_buff *skb, struct transport *t, __u32 at,
					   bool near)
{
	union {
		struct icmp_header icmp;
		__be16 ports[2];
	} start;

	if (t->size < header_size(t->protocol))
		return t->part == PART_FIRST ? DROP_TINY_FRAGMENT : DROP_MALFORMED;
	if (near && t->protocol == TCP_PROTOCOL && read_near_tcp(skb, at, t))
		return FINE;
	if (!read_start(skb, at, &start.icmp, near))
		return DROP_MALFORMED;
	if (is_icmp(t->protocol))
		return read_icmp(t, &start.icmp);
	t->source_port = start.ports[0];
	t->destination_port = start.ports[1];
	if (t->protocol == TCP_PROTOCOL)
		return read_signs(skb, at + TCP_FLAGS_AT, t) ? FINE : DROP_MALFORMED;
	/* A packet of SCTP without a chunk starts nothing and ends nothing. */
	if (t->protocol == SCTP_PROTOCOL)
		read_signs(skb, at + SCTP_HEADER, t);
	return FINE;
}

/* A later fragment has no header; one that reaches into it would overwrite what was checked. */
static __always_inline verdict check_later(const struct transport *t)
{
	if (t->offset + t->size > DATAGRAM_MAX)
		return DROP_MALFORMED;
	return t->offset < header_size(t->protocol) ? DROP_TINY_FRAGMENT : FINE;
}

static __always_inline void set_part(struct transport *t, __u32 offset, bool more)
{
	t->offset = offset;
	t->part = offset ? PART_LATER : more ? PART_FIRST : PART_WHOLE;
}

/* With options or in fragments: rare, and kept off every other packet's way. */
static __noinline verdict read_far(struct __sk_buff *skb, struct transport *t)
{
	return t->part == PART_LATER ? check_later(t) : read_header(skb, t, t->at, false);
}

static __always_inline verdict read_ipv4(struct __sk_buff *skb, const struct iphdr *ip,
					 struct transport *t)
{
	__u16 place = bpf_ntohs(ip->frag_off);

	*t = (struct transport){
		.at = IPV4_FRAME,
		.protocol = ip->protocol,
		.size = bpf_ntohs(ip->tot_len) - ip->ihl * 4,
	};
	if (!is_known(t->protocol, false))
		return DROP_PROTOCOL;
	if (ip->ihl == 5 && !(place & IPV4_FRAGMENT_BITS))
		return read_header(skb, t, IPV4_FRAME, true);
	t->at = ETH_HLEN + ip->ihl * 4;
	t->id = ip->id;
	set_part(t, (place & IPV4_OFFSET_BITS) * 8, place & IPV4_MORE_FRAGMENTS);
	return read_far(skb, t);
}

static __noinline verdict read_after_extensions(struct __sk_buff *skb, struct transport *t)
{
	struct extension_walk walk = { .skb = skb, .at = IPV6_FRAME, .header = t->protocol };
	verdict judged = walk_extensions(&walk);

	if (judged != FINE)
		return judged;
	if (walk.at - IPV6_FRAME > t->size)
		return DROP_MALFORMED;
	t->at = walk.at;
	t->protocol = walk.header;
	t->id = walk.id;
	t->size -= walk.at - IPV6_FRAME;
	set_part(t, walk.offset, walk.more);
	/* What a later fragment continues may begin with more extensions. */
	if (!is_known(t->protocol, true) && !(t->part == PART_LATER && is_extension(t->protocol)))
		return DROP_PROTOCOL;
	return read_far(skb, t);
}

static __always_inline verdict read_ipv6(struct __sk_buff *skb, const struct ipv6hdr *ip,
					 struct transport *t)
{
	*t = (struct transport){
		.at = IPV6_FRAME,
		.protocol = ip->nexthdr,
		.size = bpf_ntohs(ip->payload_len),
	};
	if (is_known(t->protocol, true))
		return read_header(skb, t, IPV6_FRAME, true);
	return is_extension(t->protocol) ? read_after_extensions(skb, t) : DROP_PROTOCOL;
}
