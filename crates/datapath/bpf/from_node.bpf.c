// SPDX-License-Identifier: GPL-2.0
/* Attached to the far side of the node's link: what the node sends to an alias comes here.
 *
 * The rule: only answers pass, of the agent and of whoever a pod called in the node or behind it
 * (infra.h), and the agent's probes, each to the one pod whose alias it was sent to; an answer comes
 * from the address that the pod had asked. That a packet is the agent's is believed only where the node
 * itself has sent it, and not forwarded it for somebody. */
#include "alias.h"
#include "come_in.h"
#include "deliver.h"
#include "icmp.h"
#include "translate.h"

/* How many hops are left to what the node itself sends to an alias, by the route that leads there:
 * more than to anything that has passed a router, and the node is one for what it forwards. */
#define OWN_HOPS 255

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

static __always_inline bool answer_as_service(const struct interface *own,
					      const struct transport *t, bool ipv6,
					      struct way_out *way)
{
	struct service_front_key key = { .network = own->network, .listener = t->source_port };
	struct service_front *front = bpf_map_lookup_elem(&service_fronts, &key);

	if (!front || is_mapped(&front->address) == ipv6 ||
	    front->datagrams != (t->protocol == UDP_PROTOCOL))
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
	if (way->door == PROBER)
		return t->protocol == TCP_PROTOCOL && bpf_ntohs(t->source_port) >= PROBER_PORTS;
	return way->door == SERVICE_DOOR && answer_as_service(own, t, ipv6, way);
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

/* Whether a packet is somebody's whom the pod called, and not the agent's. The node's errors may come
 * from any address of its link. */
static __always_inline bool is_of_infra(const struct way_out *way, const struct transport *t)
{
	return way->door > PROBER || is_icmp(t->protocol);
}

/* What becomes of a packet, which is described in work->wire, or GO_ON where it is not the agent's. */
static __noinline int ipv4_from_node(struct __sk_buff *skb, struct work *work)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	struct flow *flow = &work->wire;
	const struct address *known;
	struct ipv4_ends was, is;
	struct interface *own;
	struct way_out way;
	struct iphdr *ip;
	__u32 ifindex;
	bool is_own;

	if (!eth)
		return drop(skb, NO_NETWORK, DROP_MALFORMED);
	ip = ipv4_header(eth);
	was = (struct ipv4_ends){ .source = ip->saddr, .destination = ip->daddr };
	is_own = ip->ttl == OWN_HOPS;
	ifindex = aliased_ipv4(was.destination);
	own = interface_of(ifindex);
	if (!own)
		return drop(skb, NO_NETWORK, DROP_UNKNOWN_INTERFACE);
	flow->source = way.source = ipv4_mapped(was.source);
	flow->destination = ipv4_mapped(was.destination);
	way.door = bpf_ntohl(was.source) - DOOR_IPV4;
	if (check_ipv4(skb, ip) != FINE || read_ipv4(skb, ip, &flow->transport) != FINE)
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	if (is_of_infra(&way, &flow->transport))
		return GO_ON;
	known = first_source(own, false);
	if (!known || !is_own || !find_way_out(own, &flow->transport, false, &way))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	is = (struct ipv4_ends){ .source = ipv4_of(&way.source), .destination = ipv4_of(known) };
	if (translate_ipv4(skb, &was, &is, &flow->transport) ||
	    translate_ports(skb, &flow->transport, &way.ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_pod(skb, own, ifindex, bpf_htons(ETH_P_IP));
}

/* The same for IPv6. */
static __noinline int ipv6_from_node(struct __sk_buff *skb, struct work *work)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	struct flow *flow = &work->wire;
	const struct address *known;
	struct ipv6_ends was, is;
	struct interface *own;
	struct way_out way;
	struct ipv6hdr *ip;
	__u32 ifindex;
	bool is_own;

	if (!eth)
		return drop(skb, NO_NETWORK, DROP_MALFORMED);
	ip = ipv6_header(eth);
	was = (struct ipv6_ends){ .source = ipv6_address(&ip->saddr),
				  .destination = ipv6_address(&ip->daddr) };
	is_own = ip->hop_limit == OWN_HOPS;
	ifindex = aliased_ipv6(&was.destination);
	own = interface_of(ifindex);
	if (!own)
		return drop(skb, NO_NETWORK, DROP_UNKNOWN_INTERFACE);
	flow->source = way.source = was.source;
	flow->destination = was.destination;
	way.door = door_behind_ipv6(&was.source);
	if (check_ipv6(skb, ip, &was.source, &was.destination) != FINE ||
	    read_ipv6(skb, ip, &flow->transport) != FINE)
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	if (is_of_infra(&way, &flow->transport))
		return GO_ON;
	known = first_source(own, true);
	if (!known || !is_own || !find_way_out(own, &flow->transport, true, &way))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	is = (struct ipv6_ends){ .source = way.source, .destination = *known };
	if (translate_ipv6(skb, &was, &is, &flow->transport) ||
	    translate_ports(skb, &flow->transport, &way.ports))
		return drop(skb, own->network, DROP_KERNEL_REFUSED);
	return to_pod(skb, own, ifindex, bpf_htons(ETH_P_IPV6));
}

/* The network of the pod whose alias this is. */
static __noinline __u32 network_of_alias(struct address *ip)
{
	struct interface *own = interface_of(is_mapped(ip) ? aliased_ipv4(ipv4_of(ip)) :
							     aliased_ipv6(ip));

	return own ? own->network : NO_NETWORK;
}

/* What becomes of a packet of whoever a pod may have called, whose flow is in the work at hand. */
__noinline int answer_of_infra(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	struct connection *way;
	verdict judged;

	if (!work)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	begin_work(work, bpf_ktime_get_coarse_ns());
	way = find_way_in(skb, work);
	if (!way || (!is_about_another(&work->wire.transport) && !is_for_its_pod(way, work)))
		return drop(skb, network_of_alias(&work->wire.destination), DROP_NO_ENDPOINT);
	if (is_about_another(&work->wire.transport))
		return bring_error(skb, work, way);
	follow_way_in(work, way);
	judged = enter(skb, work);
	return judged == FINE ? hand_in(skb, work) : drop(skb, work->flow.network, judged);
}

SEC("classifier")
int from_node(struct __sk_buff *skb)
{
	struct ethhdr *eth = frame_start(skb, sizeof(*eth));
	struct work *work = work_at_hand();
	int action;

	if (!eth || !work)
		return drop(skb, NO_NETWORK, DROP_MALFORMED);
	work->wire = (struct flow){};
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		action = ipv4_from_node(skb, work);
		break;
	case bpf_htons(ETH_P_IPV6):
		action = ipv6_from_node(skb, work);
		break;
	default:
		return drop(skb, NO_NETWORK, DROP_NOT_IP);
	}
	return action == GO_ON ? answer_of_infra(skb) : action;
}

char LICENSE[] SEC("license") = "GPL";
