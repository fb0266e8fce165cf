// SPDX-License-Identifier: GPL-2.0
/* Node ports of services of namespaces of no tenant, on nodes without kube-proxy: at the node's uplink, in
 * both directions. Routing is the node's own, in between.
 *
 * The rules: what comes to no node port and answers nothing that did passes as it is. What comes to a
 * node port goes on to a backend with its client's own address; where it leaves the node again, to a
 * backend of another one, it gets the node's address, so that its answers come back here. Answers leave
 * with the node port as their source. What nobody takes is left to the node's own stack, which refuses
 * it. Nothing of a tenant is known here. */
#define PLAIN_WAYS outside_ways

#include "plain_choice.h"
#include "quote.h"

#define ICMP_CHECKSUM 2
#define IPV4_FAMILY 2
#define IPV6_FAMILY 10

/* How many ports of the node are tried for one that nobody speaks with the backend from. */
#define FACE_TRIES 16

/* The node's addresses on the uplink; zero where it has none of the family. */
volatile const __be32 NODE_IPV4 = 0;
volatile const __be32 NODE_IPV6[4] = {};
/* The ports from which the node speaks to backends of others: the first, and how many. */
volatile const __u32 FIRST_FACE = 0;
volatile const __u32 FACES = 0;
/* So that nobody outside can tell from which of them. */
volatile const __u32 FACE_SECRET = 0;

/* More room of the same kind. */
struct outside_room {
	struct plain_key key;
	struct plain_way way;
	struct bpf_fib_lookup route;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct outside_room);
} outside_rooms SEC(".maps");

static __always_inline bool is_nodes(const struct address *ip)
{
	const struct address own = { .words = { NODE_IPV6[0], NODE_IPV6[1], NODE_IPV6[2],
						NODE_IPV6[3] } };

	if (is_mapped(ip))
		return NODE_IPV4 && ipv4_of(ip) == NODE_IPV4;
	return !is_none(&own) && same_address(ip, &own);
}

/* What the nodes say to each other, which is most of what passes here. */
static __always_inline bool is_tunnel(const struct transport *t)
{
	return t->part == PART_WHOLE && is_at_tunnel(t->protocol, t->destination_port);
}

/* Makes the way of a packet to the backend that was chosen, and that of its answer when it leaves. */
static __always_inline void make_ways(struct plain_room *room)
{
	const struct flow *flow = &room->flow;

	room->way.seen = room->answer.seen = room->now;
	room->way.source = room->answer.destination = flow->source;
	room->way.source_port = room->answer.destination_port = flow->transport.source_port;
	room->way.destination = room->to.address;
	room->way.destination_port = room->to.port;
	room->way.place = room->answer.place = room->to.place;
	room->way.flags = room->answer.flags = 0;
	room->way.reserved = room->answer.reserved = 0;
	room->answer.source = flow->destination;
	room->answer.source_port = flow->transport.destination_port;
	name_answer(&room->answer_key, &room->way, flow->transport.protocol);
	room->answer_key.kind = PLAIN_GOES;
}

/* Whether the client speaks with the backend already, from the same port and by another node port. */
static __always_inline bool is_taken(struct plain_room *room)
{
	struct plain_way *known;

	make_ways(room);
	known = way_at(&room->answer_key);
	if (!known || !is_in_use(known, room->answer_key.protocol, room->now))
		return false;
	return known->source_port != room->answer.source_port ||
	       !same_address(&known->source, &room->answer.source);
}

/* Whether the packet leaves by the link that it came by. Where nobody knows the way, it is taken to. */
static __noinline bool leaves_again(struct __sk_buff *skb, struct plain_room *room,
				    struct bpf_fib_lookup *route)
{
	if (is_nodes(&room->to.address))
		return false;
	__builtin_memset(route, 0, sizeof(*route));
	route->ifindex = skb->ifindex;
	if (is_mapped(&room->to.address)) {
		route->family = IPV4_FAMILY;
		route->ipv4_src = ipv4_of(&room->flow.source);
		route->ipv4_dst = ipv4_of(&room->to.address);
	} else {
		route->family = IPV6_FAMILY;
		__builtin_memcpy(route->ipv6_src, &room->flow.source, sizeof(route->ipv6_src));
		__builtin_memcpy(route->ipv6_dst, &room->to.address, sizeof(route->ipv6_dst));
	}
	bpf_fib_lookup(skb, route, sizeof(*route), 0);
	return route->ifindex == skb->ifindex;
}

/* Whether answers may still come this way: who was told the last word may have much to say. */
static __always_inline bool is_answered(const struct plain_way *way, __u8 protocol, __u64 now)
{
	return (way->flags & PLAIN_OVER) != PLAIN_OVER && is_recent(way, protocol, now);
}

/* Whether the answers that come to the node's port at hand are this connection's, from now on. */
static __noinline bool takes_port(struct plain_room *room, struct outside_room *more)
{
	struct plain_way *known = way_at(&more->key);

	if (!known)
		return !bpf_map_update_elem(&outside_ways, &more->key, &more->way, BPF_NOEXIST);
	if (is_answered(known, more->key.protocol, room->now) &&
	    (known->destination_port != more->way.destination_port ||
	     !same_address(&known->destination, &more->way.destination)))
		return false;
	return !bpf_map_update_elem(&outside_ways, &more->key, &more->way, BPF_ANY);
}

/* The way of answers from the backend's node to the client. */
static __always_inline void name_coming_answer(struct plain_room *room, struct outside_room *more)
{
	more->key = room->answer_key;
	more->key.destination = room->flow.destination;
	more->key.kind = PLAIN_CAME;
	more->way = room->answer;
	more->way.source = room->to.address;
	more->way.source_port = room->to.port;
	more->way.flags |= PLAIN_ANSWER;
}

/* The way of the client's packets to the backend, when they leave. */
static __always_inline void name_going(struct plain_room *room, struct plain_key *key)
{
	*key = room->answer_key;
	key->source = room->way.source;
	key->source_port = room->way.source_port;
	key->destination = room->way.destination;
	key->destination_port = room->way.destination_port;
	key->kind = PLAIN_GOES;
}

/* The port that the connection has, if it has one: its backend takes packets from another for somebody
 * else's. */
static __noinline bool keep_port(struct plain_room *room, struct outside_room *more)
{
	struct plain_way *going;
	__be16 port;

	name_going(room, &more->key);
	going = way_at(&more->key);
	if (!going)
		return false;
	port = going->source_port;
	if ((__u32)bpf_ntohs(port) - FIRST_FACE >= FACES)
		return false;
	name_coming_answer(room, more);
	more->key.destination_port = port;
	return takes_port(room, more);
}

/* A port of the node that nobody speaks with the backend from. Each client goes on by steps of its own
 * length: those who want the same port want different ones next. */
static __noinline bool find_port(struct plain_room *room, struct outside_room *more)
{
	__u32 hash = hash_of(&room->flow, FACE_SECRET);
	__u32 step = hash >> 16 | 1;

	name_coming_answer(room, more);
#pragma clang loop unroll(full)
	for (__u32 attempt = 0; attempt < FACE_TRIES; attempt++) {
		__u32 port = FIRST_FACE + (hash + attempt * step) % FACES;

		more->key.destination_port = bpf_htons((__u16)port);
		if (takes_port(room, more))
			return true;
	}
	return false;
}

/* The connection has the face of the node towards its backend, and gets its answers. */
static __noinline bool give_face(struct plain_room *room, struct outside_room *more)
{
	if (!FACES || (!keep_port(room, more) && !find_port(room, more)))
		return false;
	more->way = room->way;
	more->way.source = room->flow.destination;
	more->way.source_port = more->key.destination_port;
	name_going(room, &more->key);
	return !bpf_map_update_elem(&outside_ways, &more->key, &more->way, BPF_ANY);
}

/* Writes down all ways of a connection, those of answers first. A verdict. */
static __noinline verdict remember_all(struct __sk_buff *skb, struct plain_room *room)
{
	__u32 first = 0;
	struct outside_room *more = bpf_map_lookup_elem(&outside_rooms, &first);

	if (!more)
		return DROP_KERNEL_REFUSED;
	if (leaves_again(skb, room, &more->route) && !give_face(room, more))
		return DROP_NAT_PORTS_SPENT;
	name_packet(&room->key, &room->flow, PLAIN_CAME);
	if (bpf_map_update_elem(&outside_ways, &room->answer_key, &room->answer, BPF_ANY) ||
	    bpf_map_update_elem(&outside_ways, &room->key, &room->way, BPF_ANY))
		return DROP_KERNEL_REFUSED;
	return FINE;
}

/* Notes the client's last word in the ways at hand. */
static __always_inline void note_end(struct plain_room *room)
{
	if (breaks_off(&room->flow.transport)) {
		room->way.flags |= PLAIN_OVER;
		room->answer.flags |= PLAIN_OVER;
	} else if (is_last_word(&room->flow.transport)) {
		room->way.flags |= PLAIN_ENDED;
		room->answer.flags |= PLAIN_OTHER_ENDED;
	}
}

/* A packet to a node port whose way is not known, or must be asked for again. */
static __noinline int decide(struct __sk_buff *skb, struct plain_room *room,
			     struct service *service, struct plain_way *known)
{
	verdict judged;

	if (!choose(service, known, room))
		return PASS;
	note_end(room);
	judged = remember_all(skb, room);
	if (judged != FINE)
		return drop_plain(skb, judged);
	return go(skb, room, PLAIN_PART_CAME);
}

/* All ways of a connection are seen together, so that none is forgotten before the others. */
static __noinline void keep_all(struct __sk_buff *skb, struct plain_room *room)
{
	const __u8 flags = room->way.flags;
	struct plain_way *answer;

	room->to.network = PLAIN_NETWORK;
	room->to.address = room->way.destination;
	room->to.port = room->way.destination_port;
	room->to.place = room->way.place;
	make_ways(room);
	answer = way_at(&room->answer_key);
	room->way.flags = flags & PLAIN_OVER;
	room->answer.flags = answer ? answer->flags & PLAIN_OVER : 0;
	note_end(room);
	remember_all(skb, room);
}

/* A packet whose way holds. */
static __always_inline int go_known(struct __sk_buff *skb, struct plain_room *room,
				    struct plain_way *known)
{
	bool is_first = note_way(known, &room->flow.transport, room->now);

	room->way = *known;
	if (!(known->flags & PLAIN_ANSWER) && (is_first || ends(&room->flow.transport)))
		keep_all(skb, room);
	return go(skb, room, PLAIN_PART_CAME);
}

/* The packet that an error is about, as the one that would answer it. Says whether it can be told. */
static __noinline bool read_about(struct __sk_buff *skb, struct plain_room *room,
				  enum plain_kind kind)
{
	struct flow *flow = &room->flow, *quoted = &room->quoted;
	verdict judged;

	*quoted = (struct flow){ .network = PLAIN_NETWORK };
	judged = flow->transport.protocol == ICMP_PROTOCOL ? read_quote_ipv4(skb, flow, quoted) :
							     read_quote_ipv6(skb, flow, quoted);
	if (judged != FINE || !can_be_served(&quoted->transport) ||
	    !read_quoted_ports(skb, &quoted->transport) ||
	    !same_address(&flow->destination, &quoted->source))
		return false;
	room->key.source = quoted->destination;
	room->key.destination = quoted->source;
	room->key.source_port = quoted->transport.destination_port;
	room->key.destination_port = quoted->transport.source_port;
	room->key.protocol = quoted->transport.protocol;
	room->key.kind = kind;
	room->key.reserved[0] = room->key.reserved[1] = 0;
	return true;
}

/* Other ends in a header of IPv4, whose own checksum makes up for them. */
static __noinline long move_ipv4(struct __sk_buff *skb, __u32 at, struct flow *from,
				 struct plain_way *to)
{
	struct ipv4_ends was = { ipv4_of(&from->source), ipv4_of(&from->destination) };
	struct ipv4_ends is = { ipv4_of(&to->source), ipv4_of(&to->destination) };
	__s64 change = bpf_csum_diff((void *)&was, sizeof(was), (void *)&is, sizeof(is), 0);

	return bpf_l3_csum_replace(skb, at + offsetof(struct iphdr, check), 0, change, 0) ||
	       bpf_skb_store_bytes(skb, at + offsetof(struct iphdr, saddr), &is, sizeof(is), 0);
}

/* The same for IPv6, where the checksum of the message at `message` covers them. */
static __noinline long move_ipv6(struct __sk_buff *skb, __u32 at, struct flow *from,
				 struct plain_way *to, __u32 message)
{
	struct ipv6_ends *was = (struct ipv6_ends *)&from->source;
	struct ipv6_ends *is = (struct ipv6_ends *)&to->source;
	__s64 change = bpf_csum_diff((void *)was, sizeof(*was), (void *)is, sizeof(*is), 0);

	return bpf_l4_csum_replace(skb, message + ICMP_CHECKSUM, 0, change, 0) ||
	       bpf_skb_store_bytes(skb, at + offsetof(struct ipv6hdr, saddr), is, sizeof(*is), 0);
}

static __noinline long move_quoted_ports(struct __sk_buff *skb, struct plain_room *room)
{
	const struct ports was = { .source = room->quoted.transport.source_port,
				   .destination = room->quoted.transport.destination_port };
	const struct ports is = { .source = room->answer.source_port,
				  .destination = room->answer.destination_port };
	__s64 change = bpf_csum_diff((void *)&was, sizeof(was), (void *)&is, sizeof(is), 0);

	return bpf_l4_csum_replace(skb, room->flow.transport.at + ICMP_CHECKSUM, 0, change, 0) ||
	       bpf_skb_store_bytes(skb, room->quoted.transport.at, &is, sizeof(is), 0);
}

/* The error gets the ends of room->way, and what it quotes those of room->answer. The quoted packet's own
 * checksum stays: nobody looks at it. */
static __noinline long move_error(struct __sk_buff *skb, struct plain_room *room)
{
	const __u32 message = room->flow.transport.at;
	const __u32 quote = message + sizeof(struct icmp_header);

	if (move_quoted_ports(skb, room))
		return -1;
	if (is_mapped(&room->flow.source))
		return move_ipv4(skb, ETH_HLEN, &room->flow, &room->way) ||
		       move_ipv4(skb, quote, &room->quoted, &room->answer);
	return move_ipv6(skb, ETH_HLEN, &room->flow, &room->way, message) ||
	       move_ipv6(skb, quote, &room->quoted, &room->answer, message);
}

/* An error about a packet that went another way than its sender knows is told as one about the sender's
 * own. Whoever says it keeps its address, unless it is the one whom the sender takes for another. */
static __noinline int lead_error(struct __sk_buff *skb, struct plain_room *room,
				 enum plain_kind kind)
{
	struct plain_way *known;

	if (!read_about(skb, room, kind))
		return PASS;
	known = way_at(&room->key);
	if (!known)
		return PASS;
	room->way = *known;
	room->answer.source = room->way.destination;
	room->answer.source_port = room->way.destination_port;
	room->answer.destination = room->way.source;
	room->answer.destination_port = room->way.source_port;
	if (!same_address(&room->flow.source, &room->quoted.destination))
		room->way.source = room->flow.source;
	return move_error(skb, room) ? drop_plain(skb, DROP_KERNEL_REFUSED) : PASS;
}

SEC("classifier")
int from_outside(struct __sk_buff *skb)
{
	struct plain_room *room = room_at_hand();
	struct plain_way *known;
	struct service *service;

	if (!room || skb->vlan_present || !read_packet(skb, &room->flow) ||
	    !is_nodes(&room->flow.destination) || is_tunnel(&room->flow.transport))
		return PASS;
	if (is_whole_error(&room->flow.transport))
		return lead_error(skb, room, PLAIN_CAME);
	if (!can_be_served(&room->flow.transport))
		return PASS;
	if (room->flow.transport.part == PART_LATER)
		return follow_first(skb, room, PLAIN_PART_CAME);
	room->now = bpf_ktime_get_coarse_ns();
	name_packet(&room->key, &room->flow, PLAIN_CAME);
	known = way_at(&room->key);
	if (known && is_settled(known, &room->flow.transport))
		return go_known(skb, room, known);
	service = service_of(&room->flow, SIDE_OUTSIDE);
	if (!service)
		return PASS;
	if (known && !is_opening_stream(&room->flow.transport) && keeps(service, known, room))
		return go_known(skb, room, known);
	return decide(skb, room, service, known);
}

SEC("classifier")
int to_outside(struct __sk_buff *skb)
{
	struct plain_room *room = room_at_hand();
	struct plain_way *known;

	if (!room || !read_packet(skb, &room->flow))
		return PASS;
	if (is_whole_error(&room->flow.transport))
		return lead_error(skb, room, PLAIN_GOES);
	if (is_tunnel(&room->flow.transport) || !can_be_served(&room->flow.transport))
		return PASS;
	if (room->flow.transport.part == PART_LATER)
		return follow_first(skb, room, PLAIN_PART_GOES);
	room->now = bpf_ktime_get_coarse_ns();
	name_packet(&room->key, &room->flow, PLAIN_GOES);
	known = way_at(&room->key);
	if (!known)
		return PASS;
	note_way(known, &room->flow.transport, room->now);
	room->way = *known;
	return go(skb, room, PLAIN_PART_GOES);
}

char LICENSE[] SEC("license") = "GPL";
