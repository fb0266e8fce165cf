/* SPDX-License-Identifier: GPL-2.0 */
/* The way to nodes and to the pods of no tenant, for networks that have one (`infra_exits`). Those of
 * other nodes are reached by the uplink, with a face of this node, as the outside is. This node itself
 * and its own pods are reached through the node's stack, with the alias of the pod's interface as the
 * face: the stack takes nothing from outside that has an address of its own.
 *
 * The rules: pods of this node alone go this way, and open what passes here; answers come back by
 * from_uplink and from_node. What is the network's own stays inside. To the port where nodes hear each
 * other nothing goes, whoever has the address; nor to ports of nodes that lead to services of others. */
#pragma once

#include "alias.h"
#include "constants.h"
#include "outside.h"
#include "work.h"

#define FAMILY_IPV4 2
#define FAMILY_IPV6 10

static __always_inline struct egress *infra_exit_of(__u32 network)
{
	const struct egress_key key = { .network = network };

	return bpf_map_lookup_elem(&infra_exits, &key);
}

static __always_inline struct infra *infra_at(const struct address *ip)
{
	const struct infra_key key = { .prefix = 8 * sizeof(key.address), .address = *ip };

	return bpf_map_lookup_elem(&infra_ranges, &key);
}

/* The tunnel's port, whose packets are believed by their sender's address: a node also has addresses
 * among those of its pods. And ports of nodes that are services'. */
static __always_inline bool is_kept_from_pods(const struct infra *infra, const struct transport *t)
{
	__u16 port = bpf_ntohs(t->destination_port);

	if (is_icmp(t->protocol))
		return false;
	return (t->protocol == UDP_PROTOCOL && port == OVERLAY_PORT) ||
	       (infra->is_node && port >= FIRST_NODE_PORT && port <= LAST_NODE_PORT);
}

/* What the other end sees in the place of the pod. */
static __always_inline struct address infra_face(const struct work *work,
						 const struct egress *exit, bool is_here)
{
	bool is_ipv4 = is_mapped(&work->flow.destination);
	__u32 ifindex = work->source.place.ifindex;

	if (is_here)
		return is_ipv4 ? ipv4_mapped(alias_ipv4(ifindex)) : alias_ipv6(ifindex);
	return is_ipv4 ? exit->ipv4 : exit->ipv6;
}

static __always_inline void take_way_to_infra(struct work *work, const struct egress *exit,
					      bool is_here)
{
	copy_flow(&work->sender, &work->flow);
	copy_flow(&work->out, &work->flow);
	work->out.source = infra_face(work, exit, is_here);
	work->destination.node = (struct address){};
	work->destination.place.ifindex = is_here ? NODE_IFINDEX : UPLINK_IFINDEX;
	work->first_port = exit->first_port;
	work->ports = exit->ports;
}

/* Whether the node would only send the packet on by its uplink, where nobody knows an alias: nobody
 * here has the address. */
static __noinline bool leads_out(struct __sk_buff *skb, struct work *work)
{
	struct bpf_fib_lookup way = { .ifindex = NODE_IFINDEX };
	const struct address *to = &work->flow.destination;

	if (is_mapped(to)) {
		way.family = FAMILY_IPV4;
		way.ipv4_src = ipv4_of(&work->out.source);
		way.ipv4_dst = ipv4_of(to);
	} else {
		way.family = FAMILY_IPV6;
		__builtin_memcpy(way.ipv6_src, work->out.source.words, sizeof(way.ipv6_src));
		__builtin_memcpy(way.ipv6_dst, to->words, sizeof(way.ipv6_dst));
	}
	switch (bpf_fib_lookup(skb, &way, sizeof(way), 0)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return way.ifindex == UPLINK_IFINDEX;
	default:
		return false;
	}
}

/* Where the packet goes to infra, if it does; what becomes of it otherwise. */
static __noinline verdict find_infra(struct work *work, verdict otherwise)
{
	struct egress *exit = work->source.place.ifindex ? infra_exit_of(work->flow.network) : NULL;
	struct infra *infra = exit ? infra_at(&work->flow.destination) : NULL;

	if (!infra || reason_closed(work->flow.network, &work->flow.destination) != FINE)
		return otherwise;
	if (infra->place == INFRA_NOWHERE ||
	    is_kept_from_pods(infra, &work->flow.transport))
		return DROP_OUTSIDE_CLOSED;
	take_way_to_infra(work, exit, infra->place == INFRA_HERE);
	return is_none(&work->out.source) || !work->ports ? otherwise : FINE;
}
