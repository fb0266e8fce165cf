/* SPDX-License-Identifier: GPL-2.0 */
/* A packet of a service with other ends than it came with, in either family: a whole one, a part of
 * a datagram, or an error that speaks of one. */
#pragma once

#include "sctp.h"
#include "work.h"

#define ICMP_CHECKSUM 2

static __always_inline struct ports ports_of(const struct flow *flow)
{
	return (struct ports){ .source = flow->transport.source_port,
			       .destination = flow->transport.destination_port };
}

static __noinline long rewrite_ipv4(struct __sk_buff *skb, struct flow *from, struct flow *to)
{
	struct ipv4_ends was = { ipv4_of(&from->source), ipv4_of(&from->destination) };
	struct ipv4_ends is = { ipv4_of(&to->source), ipv4_of(&to->destination) };

	return translate_ipv4(skb, &was, &is, &from->transport);
}

/* Both ends lie in a flow as in a header: source and destination side by side. */
static __noinline long rewrite_ipv6(struct __sk_buff *skb, struct flow *from, struct flow *to)
{
	return translate_ipv6(skb, (struct ipv6_ends *)&from->source,
			      (struct ipv6_ends *)&to->source, &from->transport);
}

static __noinline long rewrite_sctp(struct __sk_buff *skb, struct flow *from, struct flow *to)
{
	struct ports ports = ports_of(to);

	return translate_sctp(skb, &from->transport, &ports);
}

static __noinline long rewrite_ports(struct __sk_buff *skb, struct flow *from, struct flow *to)
{
	struct ports ports = ports_of(to);

	if (from->transport.part == PART_LATER)
		return 0;
	if (from->transport.protocol == SCTP_PROTOCOL)
		return rewrite_sctp(skb, from, to);
	return translate_ports(skb, &from->transport, &ports);
}

/* Both ends of an IPv4 header, whose own checksum makes up for them. */
static __noinline long move_header_ipv4(struct __sk_buff *skb, __u32 at, struct flow *from,
					struct flow *to)
{
	struct ipv4_ends was = { ipv4_of(&from->source), ipv4_of(&from->destination) };
	struct ipv4_ends is = { ipv4_of(&to->source), ipv4_of(&to->destination) };
	__s64 change = bpf_csum_diff((void *)&was, sizeof(was), (void *)&is, sizeof(is), 0);

	return bpf_l3_csum_replace(skb, at + offsetof(struct iphdr, check), 0, change, 0) ||
	       bpf_skb_store_bytes(skb, at + offsetof(struct iphdr, saddr), &is, sizeof(is), 0);
}

/* Both ends of an IPv6 header, which the checksum of the message at `message` covers. */
static __noinline long move_header_ipv6(struct __sk_buff *skb, __u32 at, __u32 message,
					struct flow *from, struct flow *to)
{
	struct ipv6_ends *was = (struct ipv6_ends *)&from->source;
	struct ipv6_ends *is = (struct ipv6_ends *)&to->source;
	__s64 change = bpf_csum_diff((void *)was, sizeof(*was), (void *)is, sizeof(*is), 0);

	return bpf_l4_csum_replace(skb, message + ICMP_CHECKSUM, 0, change, 0) ||
	       bpf_skb_store_bytes(skb, at + offsetof(struct ipv6hdr, saddr), is, sizeof(*is), 0);
}

/* An echo has its id behind its checksum, and it is that of who asked. */
static __noinline long move_quoted_id(struct __sk_buff *skb, struct work *work)
{
	__be16 was = work->reverse.transport.source_port, is = work->quote.transport.source_port;
	__u32 at = work->reverse.transport.at + offsetof(struct icmp_header, rest);

	return bpf_l4_csum_replace(skb, work->wire.transport.at + ICMP_CHECKSUM, was, is,
				   sizeof(is)) ||
	       bpf_skb_store_bytes(skb, at, &is, sizeof(is), 0);
}

static __noinline long move_quoted_ports(struct __sk_buff *skb, struct work *work)
{
	struct ports was = ports_of(&work->reverse), is = ports_of(&work->quote);
	__s64 change = bpf_csum_diff((void *)&was, sizeof(was), (void *)&is, sizeof(is), 0);

	return bpf_l4_csum_replace(skb, work->wire.transport.at + ICMP_CHECKSUM, 0, change, 0) ||
	       bpf_skb_store_bytes(skb, work->reverse.transport.at, &is, sizeof(is), 0);
}

/* An error gets the ends of work->out, and what it quotes those of work->quote. The quoted packet's own
 * checksum stays: nobody can make it from a part of the packet, and nobody looks at it. */
static __noinline long rewrite_error(struct __sk_buff *skb, struct work *work)
{
	__u32 message = work->wire.transport.at, quote = message + sizeof(struct icmp_header);

	if (is_icmp(work->reverse.transport.protocol) ? move_quoted_id(skb, work) :
							move_quoted_ports(skb, work))
		return -1;
	if (is_mapped(&work->wire.source))
		return move_header_ipv4(skb, ETH_HLEN, &work->wire, &work->out) ||
		       move_header_ipv4(skb, quote, &work->reverse, &work->quote);
	return move_header_ipv6(skb, ETH_HLEN, message, &work->wire, &work->out) ||
	       move_header_ipv6(skb, quote, message, &work->reverse, &work->quote);
}

static __always_inline bool has_same_source(const struct flow *a, const struct flow *b)
{
	return a->transport.source_port == b->transport.source_port &&
	       same_address(&a->source, &b->source);
}

static __always_inline bool has_same_destination(const struct flow *a, const struct flow *b)
{
	return a->transport.destination_port == b->transport.destination_port &&
	       same_address(&a->destination, &b->destination);
}

/* Most packets are plain, and one end of them changes. */
static __noinline long rewrite_end(struct __sk_buff *skb, struct flow *from, struct flow *to,
				   bool is_source)
{
	struct new_end end = {
		.address = is_source ? to->source : to->destination,
		.port = is_source ? to->transport.source_port : to->transport.destination_port,
		.is_source = is_source,
	};

	return move_end(skb, from, &end);
}

/* Gives a part of a datagram the number of work->out, where it is another. Of IPv6, parts have their
 * number right behind the header, or go no further. Nothing, or an error. */
static __noinline long renumber(struct __sk_buff *skb, struct work *work)
{
	__be32 was = work->wire.transport.id, is = work->out.transport.id;
	__be16 short_is = (__be16)is;
	__u8 next = 0;

	if (was == is)
		return 0;
	if (is_mapped(&work->wire.source))
		return bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), was, is,
					   sizeof(short_is)) ||
		       bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, id), &short_is,
					   sizeof(short_is), 0);
	return bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, nexthdr), &next,
				  sizeof(next)) ||
	       next != IPV6_FRAGMENT ||
	       bpf_skb_store_bytes(skb, IPV6_FRAME + offsetof(struct fragment_header, id), &is,
				   sizeof(is), 0);
}

/* Gives the packet at hand the ends of work->out. Nothing, or an error. */
__noinline int rewrite(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	bool keeps_source;

	if (!work)
		return -1;
	if (is_icmp(work->wire.transport.protocol))
		return rewrite_error(skb, work) ? -1 : 0;
	keeps_source = has_same_source(&work->wire, &work->out);
	if (is_plain(&work->wire) &&
	    keeps_source != has_same_destination(&work->wire, &work->out))
		return rewrite_end(skb, &work->wire, &work->out, !keeps_source) ? -1 : 0;
	if (is_mapped(&work->wire.source) ? rewrite_ipv4(skb, &work->wire, &work->out) :
					    rewrite_ipv6(skb, &work->wire, &work->out))
		return -1;
	return rewrite_ports(skb, &work->wire, &work->out) ? -1 : 0;
}
