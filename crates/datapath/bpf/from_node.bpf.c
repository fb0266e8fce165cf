// SPDX-License-Identifier: GPL-2.0
/* Attached to the far side of the node's link: what the node sends to an alias comes here.
 *
 * The rule: only answers of the agent pass, each to the one pod whose alias it was sent to, from
 * the address that the pod had asked. */
#include "alias.h"
#include "deliver.h"
#include "icmp.h"
#include "translate.h"

static __always_inline struct interface *interface_of(__u32 ifindex)
{
	struct interface_key key = { .ifindex = ifindex };

	return bpf_map_lookup_elem(&interfaces, &key);
}

static __always_inline bool is_answer(const struct transport *t)
{
	return has_ports(t) && t->source_port == bpf_htons(DOOR_PORT);
}

static __always_inline struct ports ports_before_door(const struct transport *t)
{
	return (struct ports){ .source = bpf_htons(DNS_PORT),
			       .destination = t->destination_port };
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
	const struct address *known, *asked;
	struct transport transport;
	struct ipv4_ends was, is;
	struct interface *own;
	struct doors *ways;
	struct ports ports;
	struct iphdr *ip;
	__u32 ifindex, door;

	if (!eth)
		return drop(skb, NO_NETWORK, DROP_MALFORMED);
	ip = ipv4_header(eth);
	was = (struct ipv4_ends){ .source = ip->saddr, .destination = ip->daddr };
	ifindex = aliased_ipv4(was.destination);
	own = interface_of(ifindex);
	if (!own)
		return drop(skb, NO_NETWORK, DROP_UNKNOWN_INTERFACE);
	known = first_source(own, false);
	ways = doors_of(own->network);
	door = bpf_ntohl(was.source) - DOOR_IPV4;
	if (!known || !ways || door >= DOORS || read_ipv4(skb, ip, &transport) != FINE ||
	    !is_answer(&transport))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	asked = &ways->ipv4[door];
	if (is_none(asked))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	is = (struct ipv4_ends){ .source = ipv4_of(asked), .destination = ipv4_of(known) };
	ports = ports_before_door(&transport);
	if (translate_ipv4(skb, &was, &is, &transport) || translate_ports(skb, &transport, &ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_pod(skb, own, ifindex, bpf_htons(ETH_P_IP));
}

static __always_inline int ipv6_from_node(struct __sk_buff *skb)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	struct transport transport;
	struct address base, *asked;
	const struct address *known;
	struct ipv6_ends was, is;
	struct interface *own;
	struct doors *ways;
	struct ports ports;
	struct ipv6hdr *ip;
	__u32 ifindex, door;

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
	ways = doors_of(own->network);
	base = behind_door_ipv6(0);
	door = bpf_ntohl(was.source.words[3]) - bpf_ntohl(base.words[3]);
	base.words[3] = was.source.words[3];
	if (!known || !ways || door >= DOORS || !same_address(&base, &was.source) ||
	    read_ipv6(skb, ip, &transport) != FINE || !is_answer(&transport))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	asked = &ways->ipv6[door];
	if (is_none(asked))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	is = (struct ipv6_ends){ .source = *asked, .destination = *known };
	ports = ports_before_door(&transport);
	if (translate_ipv6(skb, &was, &is, &transport) || translate_ports(skb, &transport, &ports))
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
