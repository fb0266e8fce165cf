/* SPDX-License-Identifier: GPL-2.0 */
/* Connections: which packets belong together, and whether a packet may be the first.
 *
 * The rule: what belongs to no connection and cannot start one passes only where nothing forbids
 * it, and an error message passes only from the one end of a connection to the other. A network's
 * connections are in a table of its own, so that it can neither see nor fill another's. */
#pragma once

#include "events.h"
#include "transport.h"

#define SECONDS(n) ((n) * 1000000000ULL)
#define SEEN_AGAIN SECONDS(1)
#define FRAGMENTS_LAST SECONDS(30)

#define ICMP_REDIRECT 5
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12
#define ICMPV6_UNREACHABLE 1
#define ICMPV6_PARAMETER_PROBLEM 4

/* A packet on its way between two endpoints. */
struct flow {
	__u64 since; /* when the younger of both came to its place */
	__u32 network;
	__u32 table; /* of the network in `connections` */
	struct address source;
	struct address destination;
	struct transport transport;
};

/* Whether a packet in the middle of a connection that is not known may begin its entry. Nothing
 * forbids it as long as no policy decides who may open connections. */
static __always_inline bool may_pick_up(const struct flow *flow __attribute__((unused)))
{
	return true;
}

static __always_inline __u64 lifetime(__u8 protocol, __u8 state)
{
	bool is_stream = protocol == TCP_PROTOCOL || protocol == SCTP_PROTOCOL;

	switch (state) {
	case STATE_ESTABLISHED:
		return is_stream ? SECONDS(6 * 3600) : SECONDS(180);
	case STATE_CLOSING:
		return SECONDS(300);
	case STATE_CLOSED:
		return SECONDS(60);
	default:
		return is_stream ? SECONDS(120) : SECONDS(30);
	}
}

/* Another CPU may have seen a later packet than ours, and then none has passed. */
static __always_inline __u64 passed(__u64 since, __u64 now)
{
	return now > since ? now - since : 0;
}

/* A connection that was opened before one of its ends came to its place belongs to somebody who had
 * the address before. */
static __always_inline bool is_alive(const struct connection *known, __u8 protocol, __u64 since,
				     __u64 now)
{
	return known->opened >= since &&
	       passed(known->last_seen, now) <= lifetime(protocol, known->state);
}

/* Any order will do, so that the words that differ most are compared first. */
static __always_inline bool is_higher(const struct flow *flow)
{
	const __be32 *source = flow->source.words, *destination = flow->destination.words;

	if (source[3] != destination[3])
		return source[3] > destination[3];
	if (source[2] != destination[2])
		return source[2] > destination[2];
	if (source[1] != destination[1])
		return source[1] > destination[1];
	if (source[0] != destination[0])
		return source[0] > destination[0];
	return flow->transport.source_port > flow->transport.destination_port;
}

static __always_inline struct connection_key key_of(const struct flow *flow, bool from_high)
{
	const struct transport *t = &flow->transport;

	if (from_high)
		return (struct connection_key){
			.network = flow->network,
			.low = flow->destination,
			.high = flow->source,
			.low_port = t->destination_port,
			.high_port = t->source_port,
			.protocol = t->protocol,
		};
	return (struct connection_key){
		.network = flow->network,
		.low = flow->source,
		.high = flow->destination,
		.low_port = t->source_port,
		.high_port = t->destination_port,
		.protocol = t->protocol,
	};
}

static __noinline void tell_flow(struct __sk_buff *skb, struct flow *flow, enum event_kind kind)
{
	struct event *event = is_watched() ? new_event(skb, flow->network, kind) : NULL;

	if (!event)
		return;
	event->source = flow->source;
	event->destination = flow->destination;
	event->source_port = flow->transport.source_port;
	event->destination_port = flow->transport.destination_port;
	event->protocol = flow->transport.protocol;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline bool is_opening(const struct transport *t)
{
	const __u8 all = TCP_SYN | TCP_ACK | TCP_FIN | TCP_RST;

	switch (t->protocol) {
	case TCP_PROTOCOL:
		return (t->signs & all) == TCP_SYN;
	case SCTP_PROTOCOL:
		return t->signs == SCTP_INIT;
	case ICMP_PROTOCOL:
		return t->signs == ICMP_ECHO;
	case IPV6_ICMP:
		return t->signs == ICMPV6_ECHO;
	default:
		return true;
	}
}

/* What comes in the middle of a connection, and makes sense there. */
static __always_inline bool is_continuing(const struct transport *t)
{
	__u8 flags = t->signs & (TCP_SYN | TCP_ACK | TCP_FIN | TCP_RST);

	if (t->protocol == ICMP_PROTOCOL)
		return t->signs == ICMP_ECHO_REPLY;
	if (t->protocol == IPV6_ICMP)
		return t->signs == ICMPV6_ECHO_REPLY;
	if (t->protocol != TCP_PROTOCOL)
		return true;
	return flags && !(flags & TCP_SYN && flags & (TCP_FIN | TCP_RST));
}

static __always_inline bool breaks_off(const struct transport *t)
{
	if (t->protocol == TCP_PROTOCOL)
		return t->signs & TCP_RST;
	return t->protocol == SCTP_PROTOCOL &&
	       (t->signs == SCTP_ABORT || t->signs == SCTP_SHUTDOWN_COMPLETE);
}

static __always_inline bool is_last_word(const struct transport *t)
{
	if (t->protocol == TCP_PROTOCOL)
		return t->signs & TCP_FIN;
	return t->protocol == SCTP_PROTOCOL && t->signs == SCTP_SHUTDOWN;
}

static __always_inline void close(struct __sk_buff *skb, struct flow *flow,
				  struct connection *known)
{
	if (known->state == STATE_CLOSED)
		return;
	known->state = STATE_CLOSED;
	tell_flow(skb, flow, EVENT_CLOSED);
}

/* A packet of a known connection may move it to another state. */
static __always_inline void advance(struct __sk_buff *skb, struct flow *flow,
				    struct connection *known, bool from_high)
{
	const __u8 both = CONNECTION_LOW_IS_DONE | CONNECTION_HIGH_IS_DONE;
	bool by_high = known->flags & CONNECTION_OPENED_BY_HIGH;

	if (breaks_off(&flow->transport))
		return close(skb, flow, known);
	if (is_last_word(&flow->transport)) {
		known->flags |= from_high ? CONNECTION_HIGH_IS_DONE : CONNECTION_LOW_IS_DONE;
		if ((known->flags & both) == both)
			return close(skb, flow, known);
		if (known->state != STATE_CLOSED)
			known->state = STATE_CLOSING;
		return;
	}
	if (known->state == STATE_NEW && by_high != from_high)
		known->state = STATE_ESTABLISHED;
}

/* Makes the entry, in the place of one that is over. What breaks off a connection that nobody
 * knows leaves none. */
static __noinline verdict open(struct __sk_buff *skb, void *table, struct flow *flow,
			       struct connection_key *key, __u64 now)
{
	struct connection fresh = { .opened = now, .last_seen = now, .state = STATE_NEW };

	if (!is_opening(&flow->transport)) {
		if (!is_continuing(&flow->transport) || !may_pick_up(flow))
			return DROP_NO_CONNECTION;
		if (breaks_off(&flow->transport) || is_last_word(&flow->transport))
			return FINE;
		fresh.state = STATE_ESTABLISHED;
	}
	if (same_address(&key->high, &flow->source) && key->high_port == flow->transport.source_port)
		fresh.flags = CONNECTION_OPENED_BY_HIGH;
	if (bpf_map_update_elem(table, key, &fresh, BPF_ANY))
		return DROP_CONNECTIONS_EXHAUSTED;
	tell_flow(skb, flow, EVENT_OPENED);
	return FINE;
}

static __always_inline verdict follow(struct __sk_buff *skb, void *table, struct flow *flow,
				      __u64 now)
{
	bool from_high = is_higher(flow);
	struct connection_key key = key_of(flow, from_high);
	struct connection *known = bpf_map_lookup_elem(table, &key);

	if (!known || !is_alive(known, key.protocol, flow->since, now))
		return open(skb, table, flow, &key, now);
	if (known->state >= STATE_CLOSING && is_opening(&flow->transport))
		return open(skb, table, flow, &key, now);
	if (known->state != STATE_CLOSED && passed(known->last_seen, now) > SEEN_AGAIN)
		known->last_seen = now;
	advance(skb, flow, known, from_high);
	return FINE;
}

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

/* An error speaks of a packet that its receiver sent, and comes from where that packet went. */
static __noinline verdict check_error(struct __sk_buff *skb, void *table, struct flow *flow,
				      __u64 now)
{
	struct flow quoted = { .network = flow->network };
	struct connection_key key;
	struct connection *known;
	verdict judged = flow->transport.protocol == ICMP_PROTOCOL ?
				 read_quote_ipv4(skb, flow, &quoted) :
				 read_quote_ipv6(skb, flow, &quoted);

	if (judged != FINE || !read_quoted_ports(skb, &quoted.transport))
		return DROP_UNRELATED_ICMP;
	if (!same_address(&quoted.source, &flow->destination) ||
	    !same_address(&quoted.destination, &flow->source))
		return DROP_UNRELATED_ICMP;
	key = key_of(&quoted, is_higher(&quoted));
	known = bpf_map_lookup_elem(table, &key);
	return known && is_alive(known, key.protocol, flow->since, now) ? FINE : DROP_UNRELATED_ICMP;
}

static __always_inline bool is_error(const struct transport *t)
{
	if (t->protocol == ICMP_PROTOCOL)
		return t->signs == ICMP_UNREACHABLE || t->signs == ICMP_TIME_EXCEEDED ||
		       t->signs == ICMP_PARAMETER_PROBLEM;
	return t->protocol == IPV6_ICMP && t->signs >= ICMPV6_UNREACHABLE &&
	       t->signs <= ICMPV6_PARAMETER_PROBLEM;
}

static __always_inline bool is_echo(const struct transport *t)
{
	if (t->protocol == ICMP_PROTOCOL)
		return t->signs == ICMP_ECHO || t->signs == ICMP_ECHO_REPLY;
	return t->signs == ICMPV6_ECHO || t->signs == ICMPV6_ECHO_REPLY;
}

static __always_inline verdict judge_icmp(struct __sk_buff *skb, void *table, struct flow *flow,
					  __u64 now)
{
	if (is_error(&flow->transport))
		return check_error(skb, table, flow, now);
	if (flow->transport.protocol == ICMP_PROTOCOL && flow->transport.signs == ICMP_REDIRECT)
		return DROP_ICMP_REDIRECT;
	return is_echo(&flow->transport) ? FINE : DROP_UNRELATED_ICMP;
}
