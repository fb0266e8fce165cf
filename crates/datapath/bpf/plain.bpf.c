// SPDX-License-Identifier: GPL-2.0
/* The services of plain pods, those of no tenant, on nodes without kube-proxy: at the host side of a
 * pod's pair, in both directions. Routing is the node's own, before and after.
 *
 * The rules: what is to no service and answers none passes as it is, but nothing to where nodes hear each
 * other: whoever can send with a node's address would be believed there, in every network. What is to a service that nobody
 * stands behind is refused at once. A stream stays with its backend, whatever becomes of the service; a
 * datagram goes there for as long as the service has it. Backends see their client's own address; a pod
 * that is its own backend sees the service's. Nothing of a tenant is known here. */
#include "plain_choice.h"
#include "quote.h"
#include "refuse_sender.h"

#define ICMP_CHECKSUM 2

/* The mark of a refusal on its way back, which has the ends of an answer and is none. */
#define PLAIN_REFUSAL 0xa7011a17

/* Makes the way of a packet to the backend that was chosen, and that of its answer. */
static __always_inline void make_ways(struct plain_room *room)
{
	const struct flow *flow = &room->flow;
	bool to_itself = same_address(&flow->source, &room->to.address);

	room->way.seen = room->answer.seen = room->now;
	room->way.source = to_itself ? flow->destination : flow->source;
	room->way.source_port = flow->transport.source_port;
	room->way.destination = room->to.address;
	room->way.destination_port = room->to.port;
	room->way.place = room->answer.place = room->to.place;
	room->way.flags = to_itself ? PLAIN_TO_ITSELF : 0;
	room->way.reserved = room->answer.reserved = 0;
	room->answer.source = flow->destination;
	room->answer.source_port = flow->transport.destination_port;
	room->answer.destination = flow->source;
	room->answer.destination_port = flow->transport.source_port;
	room->answer.flags = to_itself ? PLAIN_TO_ITSELF | PLAIN_ANSWER : 0;
	name_answer(&room->answer_key, &room->way, flow->transport.protocol);
}

/* Whether the client speaks with the backend already, from the same port and not through this service:
 * their answers could not be told apart. */
static __always_inline bool is_taken(struct plain_room *room)
{
	struct plain_way *known;

	make_ways(room);
	known = way_at(&room->answer_key);
	if (!known || !is_in_use(known, room->answer_key.protocol, room->now))
		return false;
	return known->flags & PLAIN_STRAIGHT || known->source_port != room->answer.source_port ||
	       !same_address(&known->source, &room->answer.source);
}

/* Writes down both ways of a connection. */
static __always_inline void remember_both(struct plain_room *room)
{
	bpf_map_update_elem(&plain_ways, &room->key, &room->way, BPF_ANY);
	bpf_map_update_elem(&plain_ways, &room->answer_key, &room->answer, BPF_ANY);
}

/* The sender is told, where it can be. */
static __always_inline int refuse_as(struct __sk_buff *skb, struct plain_room *room,
				     enum drop_reason reason)
{
	drop_plain(skb, reason);
	return refuse_sender(skb, &room->flow);
}

/* A packet to a service whose way is not known, or must be asked for again. */
static __noinline int decide(struct __sk_buff *skb, struct plain_room *room,
			     struct service *service, struct plain_way *known)
{
	if (!choose(service, known, room))
		return refuse_as(skb, room, DROP_NO_BACKEND);
	if (ends(&room->flow.transport))
		room->way.flags |= PLAIN_ENDED;
	room->answer.flags |= room->way.flags & PLAIN_ENDED;
	remember_both(room);
	return go(skb, room, PLAIN_PART_SENT);
}

/* The answers of a connection are seen with its packets, so that neither is forgotten before the other.
 * The ends of the packet at hand say what the service is. */
static __noinline void keep_answer(struct plain_room *room)
{
	struct plain_way *answer;

	name_answer(&room->answer_key, &room->way, room->flow.transport.protocol);
	answer = way_at(&room->answer_key);
	if (answer) {
		note_way(answer, &room->flow.transport, room->now);
		return;
	}
	room->to.address = room->way.destination;
	room->to.port = room->way.destination_port;
	room->to.place = room->way.place;
	make_ways(room);
	bpf_map_update_elem(&plain_ways, &room->answer_key, &room->answer, BPF_ANY);
}

/* A packet whose way holds. */
static __always_inline int go_known(struct __sk_buff *skb, struct plain_room *room,
				    struct plain_way *known)
{
	bool is_first = note_way(known, &room->flow.transport, room->now);

	room->way = *known;
	if (!(known->flags & PLAIN_ANSWER) && (is_first || ends(&room->flow.transport)))
		keep_answer(room);
	return go(skb, room, PLAIN_PART_SENT);
}

/* What opens a connection to whom no service leads: it must not be taken for one of a service. The newest
 * datagram says whose answers come; of two streams the second is refused. */
static __noinline int go_straight(struct __sk_buff *skb, struct plain_room *room)
{
	const struct transport *t = &room->flow.transport;
	struct plain_way *known;

	room->way.source = room->flow.source;
	room->way.destination = room->flow.destination;
	room->way.source_port = t->source_port;
	room->way.destination_port = t->destination_port;
	room->way.flags = PLAIN_STRAIGHT;
	name_answer(&room->answer_key, &room->way, t->protocol);
	known = way_at(&room->answer_key);
	if (t->protocol == UDP_PROTOCOL) {
		if (known)
			bpf_map_delete_elem(&plain_ways, &room->answer_key);
		return PASS;
	}
	if (known && !(known->flags & PLAIN_STRAIGHT) && is_opening(t) &&
	    is_in_use(known, t->protocol, room->now)) {
		skb->mark = PLAIN_REFUSAL;
		return refuse_as(skb, room, DROP_PORT_TAKEN);
	}
	if (known && known->flags & PLAIN_STRAIGHT && ends(t))
		known->flags |= PLAIN_ENDED;
	if (!is_opening(t))
		return PASS;
	room->way.seen = room->now;
	room->way.place = 0;
	room->way.reserved = 0;
	bpf_map_update_elem(&plain_ways, &room->answer_key, &room->way, BPF_ANY);
	return PASS;
}

/* Whether a packet that no service leads may change what is remembered. */
static __always_inline bool is_telling(const struct transport *t)
{
	return is_opening(t) || ends(t);
}

/* Only the first part of a datagram has its port, and without it no other is anything. */
static __always_inline bool is_to_tunnel(const struct transport *t)
{
	return t->part != PART_LATER && is_at_tunnel(t->protocol, t->destination_port);
}

/* Whether a frame has a tag behind its first one. The kernel takes off all that say nothing, those behind
 * the first after its filters have looked, and then it could be a packet to there. */
static __always_inline bool is_tagged_twice(const struct __sk_buff *skb)
{
	return skb->vlan_present && (skb->protocol == bpf_htons(ETH_P_8021Q) ||
				     skb->protocol == bpf_htons(ETH_P_8021AD));
}

/* Whether a packet that cannot be read has more extension headers than are followed. It could be to
 * there, too. */
static __always_inline bool hides_its_port(struct __sk_buff *skb, const struct transport *t)
{
	return skb->protocol == bpf_htons(ETH_P_IPV6) && is_extension(t->protocol);
}

SEC("classifier")
int from_plain(struct __sk_buff *skb)
{
	struct plain_room *room = room_at_hand();
	struct plain_way *known;
	struct service *service;

	if (is_tagged_twice(skb))
		return drop_plain(skb, DROP_VLAN_TAGGED);
	if (!room)
		return PASS;
	if (!read_packet(skb, &room->flow))
		return hides_its_port(skb, &room->flow.transport) ? drop_plain(skb, DROP_MALFORMED) :
								    PASS;
	if (is_to_tunnel(&room->flow.transport))
		return drop_plain(skb, DROP_TUNNEL_PORT);
	if (!can_be_served(&room->flow.transport))
		return PASS;
	if (room->flow.transport.part == PART_LATER)
		return follow_first(skb, room, PLAIN_PART_SENT);
	room->now = bpf_ktime_get_coarse_ns();
	name_packet(&room->key, &room->flow, PLAIN_SENT);
	known = way_at(&room->key);
	if (known && is_settled(known, &room->flow.transport))
		return go_known(skb, room, known);
	service = service_of(&room->flow, SIDE_CLIENTS);
	if (known && service && !is_opening_stream(&room->flow.transport) &&
	    keeps(service, known, room))
		return go_known(skb, room, known);
	if (service)
		return decide(skb, room, service, known);
	return is_telling(&room->flow.transport) ? go_straight(skb, room) : PASS;
}

/* Whether an error is about a packet to a backend, which for its client is one to the service. Then the
 * way at hand has the ends that the client knows. */
static __noinline bool is_of_service(struct __sk_buff *skb, struct plain_room *room)
{
	struct flow *flow = &room->flow, *quoted = &room->quoted;
	struct plain_way *known;
	verdict judged;

	*quoted = (struct flow){ .network = PLAIN_NETWORK };
	judged = flow->transport.protocol == ICMP_PROTOCOL ? read_quote_ipv4(skb, flow, quoted) :
							     read_quote_ipv6(skb, flow, quoted);
	if (judged != FINE || !can_be_served(&quoted->transport) ||
	    !read_quoted_ports(skb, &quoted->transport))
		return false;
	room->way.source = quoted->source;
	room->way.destination = quoted->destination;
	room->way.source_port = quoted->transport.source_port;
	room->way.destination_port = quoted->transport.destination_port;
	room->way.flags = 0;
	name_answer(&room->answer_key, &room->way, quoted->transport.protocol);
	known = way_at(&room->answer_key);
	if (!known || known->flags & PLAIN_STRAIGHT)
		return false;
	room->way.destination = known->source;
	room->way.destination_port = known->source_port;
	return true;
}

/* The quoted packet gets the ends of the way at hand. Its own checksum stays: nobody looks at it. */
static __noinline int give_quoted_ends(struct __sk_buff *skb, struct plain_room *room)
{
	const __u32 checksum = room->flow.transport.at + ICMP_CHECKSUM;
	const __u32 quote = room->flow.transport.at + sizeof(struct icmp_header);
	const struct ports was = { .source = room->quoted.transport.source_port,
				   .destination = room->quoted.transport.destination_port };
	const struct ports is = { .source = room->way.source_port,
				  .destination = room->way.destination_port };
	__s64 change = bpf_csum_diff((void *)&was, sizeof(was), (void *)&is, sizeof(is), 0);

	if (bpf_l4_csum_replace(skb, checksum, 0, change, 0) ||
	    bpf_skb_store_bytes(skb, room->quoted.transport.at, &is, sizeof(is), 0))
		return -1;
	if (is_mapped(&room->quoted.source)) {
		const __be32 from = ipv4_of(&room->quoted.destination);
		const __be32 to = ipv4_of(&room->way.destination);

		return bpf_l3_csum_replace(skb, quote + offsetof(struct iphdr, check), from, to,
					   sizeof(to)) ||
		       bpf_skb_store_bytes(skb, quote + offsetof(struct iphdr, daddr), &to,
					   sizeof(to), 0);
	}
	change = bpf_csum_diff((void *)&room->quoted.destination, sizeof(struct address),
			       (void *)&room->way.destination, sizeof(struct address), 0);
	return bpf_l4_csum_replace(skb, checksum, 0, change, 0) ||
	       bpf_skb_store_bytes(skb, quote + offsetof(struct ipv6hdr, daddr),
				   &room->way.destination, sizeof(struct address), 0);
}

static __always_inline int error_to_plain(struct __sk_buff *skb, struct plain_room *room)
{
	return is_of_service(skb, room) && give_quoted_ends(skb, room) ?
		       drop_plain(skb, DROP_KERNEL_REFUSED) :
		       PASS;
}

SEC("classifier")
int to_plain(struct __sk_buff *skb)
{
	struct plain_room *room = room_at_hand();
	struct plain_way *known;

	if (skb->mark == PLAIN_REFUSAL) {
		skb->mark = 0;
		return PASS;
	}
	if (!room || !read_packet(skb, &room->flow))
		return PASS;
	if (is_whole_error(&room->flow.transport))
		return error_to_plain(skb, room);
	if (!can_be_served(&room->flow.transport))
		return PASS;
	if (room->flow.transport.part == PART_LATER)
		return follow_first(skb, room, PLAIN_PART_RECEIVED);
	room->now = bpf_ktime_get_coarse_ns();
	name_packet(&room->key, &room->flow, PLAIN_RECEIVED);
	known = way_at(&room->key);
	if (!known)
		return PASS;
	note_way(known, &room->flow.transport, room->now);
	if (known->flags & PLAIN_STRAIGHT)
		return PASS;
	room->way = *known;
	return go(skb, room, PLAIN_PART_RECEIVED);
}

char LICENSE[] SEC("license") = "GPL";
