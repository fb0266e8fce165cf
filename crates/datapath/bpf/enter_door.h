/* SPDX-License-Identifier: GPL-2.0 */
/* A question of a pod to one of its network's resolvers goes to the agent of the node.
 *
 * The rule: nothing else of a pod reaches the node. The source becomes the alias of the pod's
 * interface, by which the agent knows the asker whatever address it has. */
#pragma once

#include "alias.h"
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

static __always_inline bool is_question(const struct transport *transport)
{
	return transport->ports.destination == bpf_htons(DNS_PORT);
}

static __always_inline struct ports ports_behind_door(const struct transport *transport)
{
	return (struct ports){ .source = transport->ports.source,
			       .destination = bpf_htons(DOOR_PORT) };
}

static __noinline int enter_door_ipv4(struct __sk_buff *skb, struct interface *own)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	const struct address *known = first_source(own, false);
	struct doors *ways = doors_of(own->network);
	struct transport transport = {};
	struct ipv4_ends was, is;
	struct address destination;
	struct ports ports;
	struct iphdr *ip;
	__u32 door;

	if (!eth || !known || !ways)
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	ip = ipv4_header(eth);
	was = (struct ipv4_ends){ .source = ip->saddr, .destination = ip->daddr };
	destination = ipv4_mapped(was.destination);
	door = door_to(ways->ipv4, &destination);
	if (door == NO_DOOR || was.source != ipv4_of(known) ||
	    !transport_ipv4(skb, ip, &transport) || !is_question(&transport))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	is = (struct ipv4_ends){ .source = alias_ipv4(skb->ifindex),
				 .destination = behind_door_ipv4(door) };
	ports = ports_behind_door(&transport);
	if (translate_ipv4(skb, &was, &is, &transport) || translate_ports(skb, &transport, &ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_node(skb);
}

static __noinline int enter_door_ipv6(struct __sk_buff *skb, struct interface *own)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	const struct address *known = first_source(own, true);
	struct doors *ways = doors_of(own->network);
	struct transport transport = {};
	struct ipv6_ends was, is;
	struct ports ports;
	struct ipv6hdr *ip;
	__u32 door;

	if (!eth || !known || !ways)
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	ip = ipv6_header(eth);
	was = (struct ipv6_ends){ .source = ipv6_address(&ip->saddr),
				  .destination = ipv6_address(&ip->daddr) };
	door = door_to(ways->ipv6, &was.destination);
	if (door == NO_DOOR || !same_address(&was.source, known) ||
	    !transport_ipv6(skb, ip, &transport) || !is_question(&transport))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	is = (struct ipv6_ends){ .source = alias_ipv6(skb->ifindex),
				 .destination = behind_door_ipv6(door) };
	ports = ports_behind_door(&transport);
	if (translate_ipv6(skb, &was, &is, &transport) || translate_ports(skb, &transport, &ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_node(skb);
}
