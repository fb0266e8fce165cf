/* SPDX-License-Identifier: GPL-2.0 */
/* Connections with an end outside of all networks. The outside sees a face in the place of the pod:
 * an address of the node, and a port. Such a connection stands twice among those of its network: as
 * the network knows it, with its face, and by its face, which leads back to the pod (the way in).
 *
 * The rule: both ends of the way in are looked up before anything else is believed, so that two pods
 * with one address are never taken for each other. */
#pragma once

#include "outside_maps.h"
#include "rewrite.h"
#include "work.h"

/* Leaves a packet to whoever is asked next, and at last to the node's own stack. */
#define NOT_OURS TC_ACT_UNSPEC

/* Names the way in, in work->key, of a packet between a face and the outside that is sent there or comes
 * from there. What loops (loop.h) has both ends here, and a way in to each. */
static __always_inline void name_way_in(struct work *work, const struct flow *flow, bool is_sent)
{
	struct connection_key *key = &work->key;
	bool from_high = is_higher(flow);

	name_connection(key, flow, from_high);
	key->network = NO_NETWORK;
	key->kind = !work->loops	   ? KIND_OUTSIDE :
		    from_high == is_sent ? KIND_LOOP_TO_HIGH :
					   KIND_LOOP_TO_LOW;
}

/* Where node ports are: at the address that is none. */
static __always_inline struct address no_address(const struct address *like)
{
	return is_mapped(like) ? ipv4_mapped(0) : (struct address){};
}

static __always_inline bool leads_to(const struct connection *way, const struct flow *flow)
{
	return way->network == flow->network && way->table == flow->table &&
	       way->nat_port == flow->transport.source_port &&
	       same_address(&way->nat_address, &flow->source);
}

static __always_inline verdict reason_closed(__u32 network, const struct address *ip)
{
	struct closed_key key = {
		.prefix = 8 * (sizeof(key.network) + sizeof(key.address)),
		.network = bpf_htonl(network),
		.address = *ip,
	};
	struct closed *closed = bpf_map_lookup_elem(&outside_closed, &key);

	return closed ? closed->reason : FINE;
}

/* A face changes ports, which the checksum of SCTP covers; nobody can make it from a part of the
 * packet. A verdict. */
static __always_inline verdict check_sum(const struct transport *t)
{
	return t->protocol == SCTP_PROTOCOL && t->part != PART_WHOLE ? DROP_NO_CONNECTION : FINE;
}

/* An echo has its id in the place of a port, and in ICMP no address is in the checksum. */
static __noinline long rewrite_echo(struct __sk_buff *skb, struct flow *from, struct flow *to)
{
	bool asks = !is_echo_reply(&from->transport);
	__be16 was = asks ? from->transport.source_port : from->transport.destination_port;
	__be16 is = asks ? to->transport.source_port : to->transport.destination_port;
	__u32 at = from->transport.at;

	if (from->transport.part == PART_LATER)
		return 0;
	return bpf_l4_csum_replace(skb, at + ICMP_CHECKSUM, was, is, sizeof(is)) ||
	       bpf_skb_store_bytes(skb, at + offsetof(struct icmp_header, rest), &is, sizeof(is), 0);
}

static __noinline long rewrite_icmp_ends(struct __sk_buff *skb, struct flow *from, struct flow *to)
{
	struct ipv6_ends *was = (struct ipv6_ends *)&from->source;
	struct ipv6_ends *is = (struct ipv6_ends *)&to->source;
	struct ipv4_ends short_is = { ipv4_of(&is->source), ipv4_of(&is->destination) };
	__s64 change = bpf_csum_diff((void *)was, sizeof(*was), (void *)is, sizeof(*is), 0);

	if (is_mapped(&from->source))
		return bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), 0, change,
					   0) ||
		       bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, saddr), &short_is,
					   sizeof(short_is), 0);
	if (from->transport.part != PART_LATER &&
	    bpf_l4_csum_replace(skb, from->transport.at + ICMP_CHECKSUM, 0, change,
				BPF_F_PSEUDO_HDR))
		return -1;
	return bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, saddr), is, sizeof(*is),
				   0);
}

/* Gives the packet at hand, from or to the outside, the ends of work->out. Nothing, or an error. */
static __always_inline int rewrite_outside(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();

	if (!work)
		return -1;
	if (!is_icmp(work->wire.transport.protocol))
		return rewrite(skb);
	return rewrite_icmp_ends(skb, &work->wire, &work->out) ||
			       rewrite_echo(skb, &work->wire, &work->out) ?
		       -1 :
		       0;
}
