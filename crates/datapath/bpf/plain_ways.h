/* SPDX-License-Identifier: GPL-2.0 */
/* The ways of plain pods' packets: what is remembered of a connection, and how a packet gets its ends.
 *
 * A connection through a service has two entries: what the pod sends to the service finds the backend,
 * and what the backend answers finds the service. Entries make room for newer ones when there are too
 * many, the least used first; what was forgotten is decided as it was, by the ends of the packet, for as
 * long as the service has the same backends. */
#pragma once

#include <linux/pkt_cls.h>

#include "backends.h"
#include "plain_abi.h"
#include "plain_drops.h"
#include "sctp.h"
#include "signs.h"

#define PLAIN_SEEN_AGAIN SECONDS(1)

/* Whoever includes this may keep ways of its own, apart from those of pods. */
#ifndef PLAIN_WAYS
#define PLAIN_WAYS plain_ways
#endif

/* Nothing of ours: the packet goes on as it is, and whoever else looks at packets here does so. */
#define PASS TC_ACT_UNSPEC

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct plain_key);
	__type(value, struct plain_way);
} PLAIN_WAYS SEC(".maps");

/* Room for what the stack is too small for, on each CPU; no packet is in the middle of it when the next
 * one of the same CPU begins. */
struct plain_room {
	__u64 now;
	struct flow flow;   /* the packet as it came */
	struct flow quoted; /* what it quotes, if it is an error */
	struct plain_key key;
	struct plain_key answer_key;
	struct plain_way way;
	struct plain_way answer;
	struct translation to;
	struct affinity_key client;
	struct affinity known;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plain_room);
} plain_rooms SEC(".maps");

static __always_inline struct plain_room *room_at_hand(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&plain_rooms, &first);
}

static __always_inline struct plain_way *way_at(const struct plain_key *key)
{
	return bpf_map_lookup_elem(&PLAIN_WAYS, key);
}

/* Writes the key of a packet, every byte of it. */
static __always_inline void name_packet(struct plain_key *key, const struct flow *flow,
					enum plain_kind kind)
{
	key->source = flow->source;
	key->destination = flow->destination;
	key->source_port = flow->transport.source_port;
	key->destination_port = flow->transport.destination_port;
	key->protocol = flow->transport.protocol;
	key->kind = kind;
	key->reserved[0] = key->reserved[1] = 0;
}

/* Writes the key of what answers a packet that goes on with these ends. */
static __always_inline void name_answer(struct plain_key *key, const struct plain_way *way,
					__u8 protocol)
{
	key->source = way->destination;
	key->destination = way->source;
	key->source_port = way->destination_port;
	key->destination_port = way->source_port;
	key->protocol = protocol;
	key->kind = way->flags & PLAIN_TO_ITSELF ? PLAIN_SENT : PLAIN_RECEIVED;
	key->reserved[0] = key->reserved[1] = 0;
}

/* The same for a part of a datagram. IPv6 says the protocol in the first part alone. */
static __always_inline void name_part(struct plain_key *key, const struct flow *flow,
				      enum plain_kind kind)
{
	name_packet(key, flow, kind);
	key->source_port = (__be16)flow->transport.id;
	key->destination_port = (__be16)(flow->transport.id >> 16);
	if (!is_mapped(&flow->source))
		key->protocol = 0;
}

/* Whether somebody went this way not too long ago. */
static __always_inline bool is_recent(const struct plain_way *way, __u8 protocol, __u64 now)
{
	const __u64 lasts = protocol == UDP_PROTOCOL ? SECONDS(LASTS_ESTABLISHED) :
						       SECONDS(LASTS_ESTABLISHED_STREAM);

	return passed(way->seen, now) <= lasts;
}

/* Whether somebody may still speak this way. */
static __always_inline bool is_in_use(const struct plain_way *way, __u8 protocol, __u64 now)
{
	return !(way->flags & PLAIN_ENDED) && is_recent(way, protocol, now);
}

static __always_inline bool ends(const struct transport *t)
{
	return breaks_off(t) || is_last_word(t);
}

/* A packet goes this way; says whether it is the first one of this second. */
static __always_inline bool note_way(struct plain_way *way, const struct transport *t, __u64 now)
{
	bool is_first = passed(way->seen, now) > PLAIN_SEEN_AGAIN;

	if (is_first)
		way->seen = now;
	if (ends(t))
		way->flags |= breaks_off(t) ? PLAIN_OVER : PLAIN_ENDED;
	return is_first;
}

/* Gives the packet at hand the ports of the way at hand. The verifier looks at it once, and not for each who
 * calls it: a checksum is long. Nothing, or an error. */
__noinline int give_sctp_ports(struct __sk_buff *skb)
{
	struct plain_room *room = room_at_hand();
	struct ports ports;

	if (!room)
		return -1;
	ports.source = room->way.source_port;
	ports.destination = room->way.destination_port;
	return translate_sctp(skb, &room->flow.transport, &ports) ? -1 : 0;
}

static __always_inline long give_ports(struct __sk_buff *skb, const struct transport *from,
				       const struct plain_way *to)
{
	const struct ports ports = { .source = to->source_port,
				     .destination = to->destination_port };

	if (from->part == PART_LATER)
		return 0;
	if (from->protocol == SCTP_PROTOCOL)
		return give_sctp_ports(skb);
	return translate_ports(skb, from, &ports);
}

/* Gives the packet at hand, which came as `from`, the ends of the way at hand. Nothing, or an error. */
static __noinline long give_ends(struct __sk_buff *skb, struct flow *from, struct plain_way *to)
{
	if (give_ports(skb, &from->transport, to))
		return -1;
	if (is_mapped(&from->source)) {
		struct ipv4_ends was = { ipv4_of(&from->source), ipv4_of(&from->destination) };
		struct ipv4_ends is = { ipv4_of(&to->source), ipv4_of(&to->destination) };

		return translate_ipv4(skb, &was, &is, &from->transport);
	}
	return translate_ipv6(skb, (struct ipv6_ends *)&from->source,
			      (struct ipv6_ends *)&to->source, &from->transport);
}

/* Sends the frame back to where it came from. */
static __noinline int turn_back(struct __sk_buff *skb)
{
	struct ethhdr was, is;

	if (bpf_skb_load_bytes(skb, 0, &was, sizeof(was)))
		return drop_plain(skb, DROP_MALFORMED);
	copy_mac(is.h_dest, was.h_source);
	copy_mac(is.h_source, was.h_dest);
	is.h_proto = was.h_proto;
	if (bpf_skb_store_bytes(skb, 0, &is, sizeof(is), 0))
		return drop_plain(skb, DROP_KERNEL_REFUSED);
	return bpf_redirect(skb->ifindex, 0);
}

/* The packet at hand goes the way at hand. */
static __always_inline int go(struct __sk_buff *skb, struct plain_room *room, enum plain_kind parts)
{
	if (room->flow.transport.part == PART_FIRST) {
		name_part(&room->key, &room->flow, parts);
		bpf_map_update_elem(&PLAIN_WAYS, &room->key, &room->way, BPF_ANY);
	}
	if (give_ends(skb, &room->flow, &room->way))
		return drop_plain(skb, DROP_KERNEL_REFUSED);
	return room->way.flags & PLAIN_TO_ITSELF ? turn_back(skb) : PASS;
}

/* A later part of a datagram goes the way of the first. */
static __noinline int follow_first(struct __sk_buff *skb, struct plain_room *room,
				   enum plain_kind parts)
{
	struct plain_way *way;

	name_part(&room->key, &room->flow, parts);
	way = way_at(&room->key);
	if (!way)
		return PASS;
	room->way = *way;
	return go(skb, room, parts);
}

static __always_inline bool read_plain_ipv4(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	struct iphdr *ip;

	if (!eth)
		return false;
	ip = ipv4_header(eth);
	flow->source = ipv4_mapped(ip->saddr);
	flow->destination = ipv4_mapped(ip->daddr);
	return check_ipv4(skb, ip) == FINE && read_ipv4(skb, ip, &flow->transport) == FINE;
}

static __always_inline bool read_plain_ipv6(struct __sk_buff *skb, struct flow *flow)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	struct ipv6hdr *ip;

	if (!eth)
		return false;
	ip = ipv6_header(eth);
	flow->source = ipv6_address(&ip->saddr);
	flow->destination = ipv6_address(&ip->daddr);
	return check_ipv6(skb, ip, &flow->source, &flow->destination) == FINE &&
	       read_ipv6(skb, ip, &flow->transport) == FINE;
}

/* Reads a packet. One that cannot be read is to no service and from none. */
static __always_inline bool read_packet(struct __sk_buff *skb, struct flow *flow)
{
	flow->network = PLAIN_NETWORK;
	flow->table = 0;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return read_plain_ipv4(skb, flow);
	return skb->protocol == bpf_htons(ETH_P_IPV6) && read_plain_ipv6(skb, flow);
}
