/* SPDX-License-Identifier: GPL-2.0 */
/* What most packets are: whole ones of TCP or UDP, over IPv4 without options, from the first address
 * of their pod, in the middle of a connection that is decided and was seen within the second. Nothing
 * about such a packet must be written down but that it was there, so that it is read where it lies,
 * without the description of it that everything else needs.
 *
 * The rule: what passes here would pass just so by the longer path, which has every check that is here
 * and more. Whatever is not exactly as it must be here is left to that path. Nobody is refused here. */
#pragma once

#include "ipv4.h"
#include "of_service.h"
#include "send.h"

/* What is read of a frame: all up to TCP's flags. */
#define USUAL_BYTES (IPV4_FRAME + TCP_FLAGS_AT + 1)
/* The first byte of a header of IPv4 that has no options. */
#define IPV4_PLAIN 0x45

static __always_inline __be16 half_at(const void *frame, __u32 at)
{
	return *(const __be16 *)(frame + at);
}

static __always_inline __u8 byte_at(const void *frame, __u32 at)
{
	return *(const __u8 *)(frame + at);
}

/* Whether it changes nothing about its connection, as is_routine says of one that is established. */
static __always_inline bool has_usual_content(const void *frame, const struct iphdr *ip)
{
	if (ip->protocol == TCP_PROTOCOL)
		return !(byte_at(frame, IPV4_FRAME + TCP_FLAGS_AT) & (TCP_SYN | TCP_FIN | TCP_RST));
	return ip->protocol == UDP_PROTOCOL;
}

/* Whether lengths agree. One of UDP that has not even the length of TCP's header takes the longer
 * path. */
static __always_inline bool has_usual_length(struct __sk_buff *skb, const struct iphdr *ip)
{
	__u32 total = bpf_ntohs(ip->tot_len);

	return total >= sizeof(*ip) + TCP_HEADER && total + ETH_HLEN <= skb->len;
}

/* Whether a frame, of which USUAL_BYTES are at hand, is a packet as above. */
static __always_inline bool is_usual(struct __sk_buff *skb, const void *frame)
{
	const struct iphdr *ip = frame + ETH_HLEN;

	return half_at(frame, offsetof(struct ethhdr, h_proto)) == bpf_htons(ETH_P_IP) &&
	       byte_at(frame, ETH_HLEN) == IPV4_PLAIN &&
	       !(ip->frag_off & bpf_htons(IPV4_FRAGMENT_BITS)) && has_usual_content(frame, ip) &&
	       has_usual_length(skb, ip);
}

/* Whether it is the pod's own, and for one receiver that is another. A pod that has no address has
 * zeroes for its first, which is nobody's of IPv4. */
static __always_inline bool is_usual_of(const struct interface *own, const void *frame)
{
	const struct iphdr *ip = frame + ETH_HLEN;
	const struct address source = ipv4_mapped(ip->saddr);

	return same_mac(frame + offsetof(struct ethhdr, h_source), own->mac) &&
	       same_address(&source, &own->sources[0]) && !is_group_mac(frame) &&
	       !is_group_ipv4(ip->daddr) && ip->saddr != ip->daddr;
}

/* As is_higher, where both addresses differ, which they do in their last words. */
static __always_inline bool is_from_high(const void *frame)
{
	const struct iphdr *ip = frame + ETH_HLEN;

	return ip->saddr > ip->daddr;
}

/* As name_connection, from the frame itself. The barrier keeps the compiler from asking for each word
 * anew which end it is of. */
static __always_inline struct connection *usual_connection(const void *frame, __u32 network,
							   bool from_high)
{
	const struct iphdr *ip = frame + ETH_HLEN;
	__be16 low_port = half_at(frame, IPV4_FRAME);
	__be16 high_port = half_at(frame, IPV4_FRAME + sizeof(__be16));
	__be32 low = ip->saddr, high = ip->daddr;
	struct connection_key key __attribute__((aligned(8)));

	if (from_high) {
		low = ip->daddr;
		high = ip->saddr;
		low_port = half_at(frame, IPV4_FRAME + sizeof(__be16));
		high_port = half_at(frame, IPV4_FRAME);
		barrier();
	}
	key = (struct connection_key){
		.network = network,
		.low = ipv4_mapped(low),
		.high = ipv4_mapped(high),
		.low_port = low_port,
		.high_port = high_port,
		.protocol = ip->protocol,
		.kind = KIND_CONNECTION,
	};
	return connection_at(&key);
}

/* Whether a usual packet needs nothing but what the entry says. */
static __always_inline bool is_usual_entry(const struct connection *known,
					   const struct network *network, __u32 table, __u64 now)
{
	return known->table == table && known->generation == network->generation &&
	       known->state == STATE_ESTABLISHED &&
	       !(known->flags & (CONNECTION_DENIED | CONNECTION_OUTSIDE | CONNECTION_ACROSS)) &&
	       was_just_seen(known, now);
}

/* As is_served_at_once, for an entry of a service that is as above. A pod that is its own backend is
 * told by the last word of the address alone, which may be another's, too. */
static __always_inline bool is_usual_service(const struct connection *known, const void *frame,
					     bool from_high)
{
	const struct iphdr *ip = frame + ETH_HLEN;
	bool leads_on = known->flags & CONNECTION_LEADS_ON;

	return is_by_sender(known, from_high) == leads_on &&
	       (leads_on || ipv4_of(&known->nat_address) != ip->daddr);
}

/* As serve, for a usual packet. */
static __noinline long serve_usual(struct __sk_buff *skb, struct connection *known, __u32 table)
{
	struct new_end to = {
		.address = known->nat_address,
		.port = known->nat_port,
		.is_source = known->flags & CONNECTION_TRANSLATED,
	};
	void *frame = linear_start(skb);
	const struct iphdr *ip = frame + ETH_HLEN;
	struct flow flow = {};

	barrier();
	if (*(volatile __u16 *)&known->table != table || frame + USUAL_BYTES > linear_end(skb))
		return -1;
	flow.source = ipv4_mapped(ip->saddr);
	flow.destination = ipv4_mapped(ip->daddr);
	flow.transport.at = IPV4_FRAME;
	flow.transport.protocol = ip->protocol;
	flow.transport.source_port = half_at(frame, IPV4_FRAME);
	flow.transport.destination_port = half_at(frame, IPV4_FRAME + sizeof(__be16));
	return move_end_ipv4(skb, &flow, &to);
}

/* A usual packet of the entry goes to its place; GO_ON where it must take the longer path. */
static __always_inline int send_usual(struct __sk_buff *skb, struct interface *own, void *frame,
				      struct connection *known, const struct place *to,
				      bool from_high)
{
	if (known->flags & OF_SERVICE) {
		if (!is_usual_service(known, frame, from_high))
			return GO_ON;
		if (serve_usual(skb, known, own->table))
			return drop(skb, own->network, DROP_KERNEL_REFUSED);
		frame = linear_start(skb);
		if (frame + ETH_HLEN > linear_end(skb))
			return drop(skb, own->network, DROP_MALFORMED);
	}
	if (!to->ifindex)
		return send_on(skb, own, to, &known->node);
	count_sent(skb, own->slot);
	return deliver_here(skb, frame, to);
}

/* What becomes of the packet, or GO_ON where it is not usual. The place is taken from the entry before
 * that is seen to be of this network, as in from_pod and for the same reason. */
static __always_inline int pass_usual(struct __sk_buff *skb, struct interface *own)
{
	void *frame = linear_start(skb);
	struct connection *known;
	struct network *network;
	struct place to;
	bool from_high;

	if (frame + USUAL_BYTES > linear_end(skb) || !is_usual(skb, frame) ||
	    !is_usual_of(own, frame))
		return GO_ON;
	from_high = is_from_high(frame);
	known = usual_connection(frame, own->network, from_high);
	network = network_at(own->table);
	if (!known || !network)
		return GO_ON;
	to = place_of_receiver(known, from_high);
	barrier();
	if (!is_usual_entry(known, network, own->table, bpf_ktime_get_coarse_ns()) ||
	    !fits(skb, &to))
		return GO_ON;
	return send_usual(skb, own, frame, known, &to, from_high);
}
