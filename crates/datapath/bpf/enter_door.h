/* SPDX-License-Identifier: GPL-2.0 */
/* The ways from a pod to the agent of its node: a question to one of its network's resolvers, a
 * connection or datagrams to a service of the cluster's own, and the pod's part in a probe of the agent.
 *
 * The rule: nothing else of a pod reaches the agent, and a pod opens nothing towards the prober. The
 * source becomes the alias of the pod's interface, by which the agent knows the pod whatever address
 * it has. Of questions and datagrams, no pod sends so many that they would fill the queue which it shares
 * with all others. */
#pragma once

#include "alias.h"
#include "flow.h"
#include "constants.h"
#include "drops.h"
#include "questions.h"
#include "to_node.h"
#include "translate.h"
#include "work.h"

#define NO_WAY 0xffffffff

/* Where a packet comes out on the node. */
struct way_in {
	__u32 door; /* counted from the first address of the node's link */
	struct ports ports;
};

static __always_inline __u32 door_to(const struct address *of, const struct address *destination)
{
	if (is_none(destination))
		return NO_WAY;
	if (same_address(&of[0], destination))
		return 0;
	return same_address(&of[1], destination) ? 1 : NO_WAY;
}

static __always_inline void ask_resolver(const struct flow *flow, const struct interface *own,
					 bool ipv6, struct way_in *way)
{
	struct doors *ways = doors_of(own->network);

	if (!ways || flow->transport.destination_port != bpf_htons(DNS_PORT))
		return;
	way->door = door_to(ipv6 ? ways->ipv6 : ways->ipv4, &flow->destination);
	way->ports.destination = bpf_htons(DOOR_PORT);
}

static __always_inline void call_service(const struct flow *flow, const struct interface *own,
					 struct way_in *way)
{
	struct service_door_key key = { .network = own->network,
					.address = flow->destination,
					.port = flow->transport.destination_port,
					.datagrams = flow->transport.protocol == UDP_PROTOCOL };
	struct service_door *door = bpf_map_lookup_elem(&service_doors, &key);

	if (!door)
		return;
	way->door = SERVICE_DOOR;
	way->ports.destination = door->listener;
}

/* A pod's part in a probe. Other ports of the prober's address are the node's, and even a refusal
 * would tell something of them. */
static __always_inline bool answers_probe(const struct transport *t)
{
	bool opens = (t->signs & (TCP_SYN | TCP_ACK)) == TCP_SYN;

	return !opens && bpf_ntohs(t->destination_port) >= PROBER_PORTS;
}

static __always_inline bool is_prober(const struct address *ip, bool ipv6)
{
	struct address prober = ipv6 ? behind_door_ipv6(PROBER) :
				       ipv4_mapped(behind_door_ipv4(PROBER));

	return same_address(&prober, ip);
}

static __noinline int find_way_in(const struct flow *flow, const struct interface *own, bool ipv6,
				  struct way_in *way)
{
	const struct address *known = first_source(own, ipv6);
	const struct transport *t = &flow->transport;

	way->door = NO_WAY;
	way->ports = (struct ports){ .source = t->source_port,
				     .destination = t->destination_port };
	if (!known || !same_address(&flow->source, known) || !has_ports(t))
		return 0;
	ask_resolver(flow, own, ipv6, way);
	if (way->door != NO_WAY)
		return 0;
	if (!is_prober(&flow->destination, ipv6))
		call_service(flow, own, way);
	else if (t->protocol == TCP_PROTOCOL && answers_probe(t))
		way->door = PROBER;
	return 0;
}

/* Whether a packet is within the budget of who sends it. Only what waits in a queue with those of others
 * counts: all questions, and the datagrams of calls. */
static __always_inline bool is_within_budget(const struct __sk_buff *skb,
					     const struct interface *own,
					     const struct transport *t,
					     const struct way_in *way, __u64 now)
{
	__u32 count = questions_in(skb, t);

	if (way->door < DOORS)
		return !count || spend_questions(own->slot, now, count);
	return t->protocol != UDP_PROTOCOL || spend_datagrams(own->slot, now, count);
}

/* What policy says to a question, and then the budget of who asks. The agent is no pod: rules know it
 * by the door's address. Each packet is asked about, since a question leaves no connection. What a pod
 * answers to probes of its own node is not: no policy stands between the two. */
static __always_inline verdict may_ask(const struct __sk_buff *skb, const struct interface *own,
				       const struct flow *flow, const struct way_in *way)
{
	struct work *work = work_at_hand();
	verdict judged;

	if (way->door == PROBER)
		return FINE;
	if (!work)
		return DROP_POLICY_UNKNOWN;
	work->question = (struct question){
		.network = flow->network,
		.opener = flow->source,
		.other = flow->destination,
		.port = flow->transport.destination_port,
		.protocol = flow->transport.protocol,
		.opener_is_here = 1,
		.other_is_outside = 1,
	};
	judged = judge_policy(&work->question);
	if (judged != FINE)
		return judged;
	return is_within_budget(skb, own, &flow->transport, way, work->now) ?
		       FINE :
		       DROP_TOO_MANY_QUESTIONS;
}

static __noinline int enter_door_ipv4(struct __sk_buff *skb, struct interface *own,
				      struct flow *flow)
{
	struct ipv4_ends was, is;
	struct way_in way;
	verdict judged;

	find_way_in(flow, own, false, &way);
	if (way.door == NO_WAY)
		return GO_ON;
	judged = may_ask(skb, own, flow, &way);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	was = (struct ipv4_ends){ .source = ipv4_of(&flow->source),
				  .destination = ipv4_of(&flow->destination) };
	is = (struct ipv4_ends){ .source = alias_ipv4(skb->ifindex),
				 .destination = behind_door_ipv4(way.door) };
	if (translate_ipv4(skb, &was, &is, &flow->transport) ||
	    translate_ports(skb, &flow->transport, &way.ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_node(skb);
}

static __noinline int enter_door_ipv6(struct __sk_buff *skb, struct interface *own,
				      struct flow *flow)
{
	struct ipv6_ends was, is;
	struct way_in way;
	verdict judged;

	find_way_in(flow, own, true, &way);
	if (way.door == NO_WAY)
		return GO_ON;
	judged = may_ask(skb, own, flow, &way);
	if (judged != FINE)
		return drop(skb, own->network, judged);
	was = (struct ipv6_ends){ .source = flow->source, .destination = flow->destination };
	is = (struct ipv6_ends){ .source = alias_ipv6(skb->ifindex),
				 .destination = behind_door_ipv6(way.door) };
	if (translate_ipv6(skb, &was, &is, &flow->transport) ||
	    translate_ports(skb, &flow->transport, &way.ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_node(skb);
}
