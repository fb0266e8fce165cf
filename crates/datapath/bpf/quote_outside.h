/* SPDX-License-Identifier: GPL-2.0 */
/* Errors that come from outside: any router may send one about a packet that left with a face.
 *
 * The rule: an error passes only where it quotes a packet of a live connection about which what was
 * decided holds. It reaches the pod as one about the packet that the pod sent. */
#pragma once

#include "icmp_error.h"
#include "outside.h"

/* Which packet of ours the error is about: into work->reverse, as the outside saw it. */
static __noinline bool read_quoted(struct __sk_buff *skb, struct work *work)
{
	struct flow *flow = &work->flow, *quoted = &work->reverse;
	verdict judged;

	*quoted = (struct flow){ .network = NO_NETWORK };
	judged = flow->transport.protocol == ICMP_PROTOCOL ? read_quote_ipv4(skb, flow, quoted) :
							     read_quote_ipv6(skb, flow, quoted);
	return judged == FINE && read_quoted_ports(skb, &quoted->transport) &&
	       same_address(&quoted->source, &flow->destination);
}

/* Whether the connection of the quoted packet is alive. Its sender is filled in. */
static __noinline bool is_about_connection(struct work *work, const struct connection *way)
{
	struct flow *quoted = &work->reverse;
	struct connection *known;

	work->out = work->wire;
	work->out.destination = quoted->source = way->nat_address;
	work->out.transport.source_port = quoted->transport.source_port = way->nat_port;
	work->out.transport.at = quoted->transport.at;
	work->out.transport.protocol = quoted->transport.protocol;
	quoted->network = work->flow.network;
	name_connection(&work->key, quoted, is_higher(quoted));
	known = connection_at(&work->key);
	return known && known->flags & CONNECTION_OUTSIDE && is_settled(known, work) &&
	       !is_over(known, work->key.protocol, work->now);
}

/* The quoted header's own checksum makes up for its address. */
static __noinline long rewrite_quote_ipv4(struct __sk_buff *skb, struct flow *from, struct flow *to)
{
	__be32 was = ipv4_of(&from->destination), is = ipv4_of(&to->destination);
	__u32 quote = from->transport.at + sizeof(struct icmp_header);

	return bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), was, is,
				   sizeof(is)) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, daddr), &is, sizeof(is),
				   0) ||
	       bpf_l3_csum_replace(skb, quote + offsetof(struct iphdr, check), was, is,
				   sizeof(is)) ||
	       bpf_skb_store_bytes(skb, quote + offsetof(struct iphdr, saddr), &is, sizeof(is), 0);
}

static __noinline long rewrite_quote_ipv6(struct __sk_buff *skb, struct flow *from, struct flow *to)
{
	const struct address *was = &from->destination, *is = &to->destination;
	__u32 quote = from->transport.at + sizeof(struct icmp_header);
	__u32 sum = from->transport.at + ICMP_CHECKSUM;
	__s64 change = bpf_csum_diff((void *)was, sizeof(*was), (void *)is, sizeof(*is), 0);

	/* Once for the pseudo header, once for the quote. */
	return bpf_l4_csum_replace(skb, sum, 0, change, BPF_F_PSEUDO_HDR) ||
	       bpf_l4_csum_replace(skb, sum, 0, change, 0) ||
	       bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, daddr), is,
				   sizeof(*is), 0) ||
	       bpf_skb_store_bytes(skb, quote + offsetof(struct ipv6hdr, saddr), is, sizeof(*is),
				   0);
}

/* An echo has its id behind its checksum. */
static __always_inline __u32 port_at(const struct transport *quoted)
{
	return quoted->at + (is_icmp(quoted->protocol) ? offsetof(struct icmp_header, rest) : 0);
}

/* Gives the error at hand the pod in the place of its face. Nothing, or an error. */
static __noinline int rewrite_quote(struct __sk_buff *skb, struct work *work)
{
	struct flow *from = &work->wire, *to = &work->out;
	__be16 was, is = to->transport.source_port;
	__u32 at = port_at(&to->transport);

	if (bpf_skb_load_bytes(skb, at, &was, sizeof(was)) ||
	    bpf_l4_csum_replace(skb, from->transport.at + ICMP_CHECKSUM, was, is, sizeof(is)) ||
	    bpf_skb_store_bytes(skb, at, &is, sizeof(is), 0))
		return -1;
	return (is_mapped(&from->source) ? rewrite_quote_ipv4(skb, from, to) :
					   rewrite_quote_ipv6(skb, from, to)) ?
		       -1 :
		       0;
}
