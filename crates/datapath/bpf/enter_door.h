/* SPDX-License-Identifier: GPL-2.0 */
/* A question of a pod to one of its network's resolvers goes to the agent of the node.
 *
 * The rule: nothing else of a pod reaches the node. The source becomes the alias of the pod's
 * interface, by which the agent knows the asker whatever address it has. */
#pragma once

#include "alias.h"
#include "flow.h"
#include "constants.h"
#include "drops.h"
#include "translate.h"

#define NO_DOOR DOORS

static __always_inline __u32 door_to(const struct address *of, const struct address *destination)
{
	if (is_none(destination))
		return NO_DOOR;
	if (same_address(&of[0], destination))
		return 0;
	return same_address(&of[1], destination) ? 1 : NO_DOOR;
}

static __always_inline int to_node(struct __sk_buff *skb)
{
	const struct {
		__u8 to[ETH_ALEN], from[ETH_ALEN];
	} macs = { .to = NODE_MAC, .from = GATEWAY_MAC };

	bpf_skb_store_bytes(skb, 0, &macs, sizeof(macs), 0);
	return bpf_redirect(NODE_IFINDEX, BPF_F_INGRESS);
}

static __always_inline bool is_question(const struct transport *t)
{
	return has_ports(t) && t->destination_port == bpf_htons(DNS_PORT);
}

static __always_inline struct ports ports_behind_door(const struct transport *t)
{
	return (struct ports){ .source = t->source_port, .destination = bpf_htons(DOOR_PORT) };
}

/* The door that this packet asks at, or NO_DOOR. */
static __always_inline __u32 asked_door(const struct flow *flow, const struct interface *own,
					bool ipv6)
{
	const struct address *known = first_source(own, ipv6);
	struct doors *ways = doors_of(own->network);

	if (!known || !ways || !same_address(&flow->source, known) ||
	    !is_question(&flow->transport))
		return NO_DOOR;
	return door_to(ipv6 ? ways->ipv6 : ways->ipv4, &flow->destination);
}

static __noinline int enter_door_ipv4(struct __sk_buff *skb, struct interface *own,
				      struct flow *flow)
{
	struct ports ports = ports_behind_door(&flow->transport);
	__u32 door = asked_door(flow, own, false);
	struct ipv4_ends was, is;

	if (door == NO_DOOR)
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	was = (struct ipv4_ends){ .source = ipv4_of(&flow->source),
				  .destination = ipv4_of(&flow->destination) };
	is = (struct ipv4_ends){ .source = alias_ipv4(skb->ifindex),
				 .destination = behind_door_ipv4(door) };
	if (translate_ipv4(skb, &was, &is, &flow->transport) ||
	    translate_ports(skb, &flow->transport, &ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_node(skb);
}

static __noinline int enter_door_ipv6(struct __sk_buff *skb, struct interface *own,
				      struct flow *flow)
{
	struct ports ports = ports_behind_door(&flow->transport);
	__u32 door = asked_door(flow, own, true);
	struct ipv6_ends was, is;

	if (door == NO_DOOR)
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	was = (struct ipv6_ends){ .source = flow->source, .destination = flow->destination };
	is = (struct ipv6_ends){ .source = alias_ipv6(skb->ifindex),
				 .destination = behind_door_ipv6(door) };
	if (translate_ipv6(skb, &was, &is, &flow->transport) ||
	    translate_ports(skb, &flow->transport, &ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_node(skb);
}
