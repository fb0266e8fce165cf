// SPDX-License-Identifier: GPL-2.0
/* Attached to the far side of the node's link: what the node sends to an alias comes here.
 *
 * The rule: only answers of the agent and its probes pass, each to the one pod whose alias it was
 * sent to; an answer comes from the address that the pod had asked. */
#include "alias.h"
#include "deliver.h"
#include "icmp.h"
#include "translate.h"

static __always_inline struct interface *interface_of(__u32 ifindex)
{
	struct interface_key key = { .ifindex = ifindex };

	return bpf_map_lookup_elem(&interfaces, &key);
}

/* What a packet of the node comes from: the address behind a door, then what the pod sees. */
struct way_out {
	__u32 door;
	struct address source;
	struct ports ports;
};

static __always_inline bool answer_question(const struct interface *own, const struct transport *t,
					    bool ipv6, struct way_out *way)
{
	struct doors *ways = doors_of(own->network);
	__u32 door = way->door;

	if (!ways || door >= DOORS || t->source_port != bpf_htons(DOOR_PORT))
		return false;
	way->source = ipv6 ? ways->ipv6[door] : ways->ipv4[door];
	way->ports.source = bpf_htons(DNS_PORT);
	return !is_none(&way->source);
}

static __always_inline bool answer_for_service(const struct interface *own,
					       const struct transport *t, bool ipv6,
					       struct way_out *way)
{
	struct service_front_key key = { .network = own->network, .listener = t->source_port };
	struct service_front *front = bpf_map_lookup_elem(&service_fronts, &key);

	if (!front || is_mapped(&front->address) == ipv6)
		return false;
	way->source = front->address;
	way->ports.source = front->port;
	return true;
}

static __noinline bool find_way_out(const struct interface *own, const struct transport *t,
				    bool ipv6, struct way_out *way)
{
	way->ports = (struct ports){ .source = t->source_port,
				     .destination = t->destination_port };
	if (!has_ports(t))
		return false;
	if (way->door < DOORS)
		return answer_question(own, t, ipv6, way);
	if (t->protocol != TCP_PROTOCOL)
		return false;
	if (way->door == PROBER)
		return bpf_ntohs(t->source_port) >= PROBER_PORTS;
	return way->door == SERVICE_DOOR && answer_for_service(own, t, ipv6, way);
}

static __always_inline int to_pod(struct __sk_buff *skb, const struct interface *own,
				  __u32 ifindex, __be16 protocol)
{
	struct ethhdr *eth = frame_start(skb, sizeof(*eth));

	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	address_to_pod(eth, own, protocol);
	bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(ifindex, 0);
}

static __always_inline int ipv4_from_node(struct __sk_buff *skb)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	const struct address *known;
	struct transport transport;
	struct ipv4_ends was, is;
	struct interface *own;
	struct way_out way;
	struct iphdr *ip;
	__u32 ifindex;

	if (!eth)
		return drop(skb, NO_NETWORK, DROP_MALFORMED);
	ip = ipv4_header(eth);
	was = (struct ipv4_ends){ .source = ip->saddr, .destination = ip->daddr };
	ifindex = aliased_ipv4(was.destination);
	own = interface_of(ifindex);
	if (!own)
		return drop(skb, NO_NETWORK, DROP_UNKNOWN_INTERFACE);
	known = first_source(own, false);
	way.source = ipv4_mapped(was.source);
	way.door = bpf_ntohl(was.source) - DOOR_IPV4;
	if (!known || read_ipv4(skb, ip, &transport) != FINE ||
	    !find_way_out(own, &transport, false, &way))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	is = (struct ipv4_ends){ .source = ipv4_of(&way.source), .destination = ipv4_of(known) };
	if (translate_ipv4(skb, &was, &is, &transport) ||
	    translate_ports(skb, &transport, &way.ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_pod(skb, own, ifindex, bpf_htons(ETH_P_IP));
}

static __always_inline int ipv6_from_node(struct __sk_buff *skb)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	const struct address *known;
	struct transport transport;
	struct ipv6_ends was, is;
	struct interface *own;
	struct way_out way;
	struct ipv6hdr *ip;
	__u32 ifindex;

	if (!eth)
		return drop(skb, NO_NETWORK, DROP_MALFORMED);
	ip = ipv6_header(eth);
	was = (struct ipv6_ends){ .source = ipv6_address(&ip->saddr),
				  .destination = ipv6_address(&ip->daddr) };
	ifindex = aliased_ipv6(&was.destination);
	own = interface_of(ifindex);
	if (!own)
		return drop(skb, NO_NETWORK, DROP_UNKNOWN_INTERFACE);
	known = first_source(own, true);
	way.source = was.source;
	way.door = door_behind_ipv6(&was.source);
	if (!known || read_ipv6(skb, ip, &transport) != FINE ||
	    !find_way_out(own, &transport, true, &way))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	is = (struct ipv6_ends){ .source = way.source, .destination = *known };
	if (translate_ipv6(skb, &was, &is, &transport) ||
	    translate_ports(skb, &transport, &way.ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_pod(skb, own, ifindex, bpf_htons(ETH_P_IPV6));
}

SEC("classifier")
int from_node(struct __sk_buff *skb)
{
	struct ethhdr *eth = frame_start(skb, sizeof(*eth));

	if (!eth)
		return drop(skb, NO_NETWORK, DROP_MALFORMED);
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		return ipv4_from_node(skb);
	case bpf_htons(ETH_P_IPV6):
		return ipv6_from_node(skb);
	default:
		return drop(skb, NO_NETWORK, DROP_NOT_IP);
	}
}

char LICENSE[] SEC("license") = "GPL";
