// SPDX-License-Identifier: GPL-2.0
/* Attached to the node's tunnel device: what other nodes send comes here first.
 *
 * The rule: only known nodes are heard, each only for the pods that live on it, and no packet ever
 * reaches the node's own network stack.
 *
 * A pod that moves to another node is heard from there as soon as this node has learned of the
 * move. Until then its packets are dropped; their answers would go to the old node anyway, so a
 * conversation loses nothing by it, and a node that was taken over can speak for nobody else's
 * pods. */
#include "across.h"
#include "address.h"
#include "constants.h"
#include "decide.h"
#include "deliver.h"
#include "drops.h"
#include "ipv4.h"
#include "ipv6.h"
#include "leave.h"
#include "maps.h"
#include "of_service.h"
#include "rewrite.h"
#include "send_outside.h"

static __always_inline bool lives_on(const struct endpoint *endpoint, const struct address *node)
{
	return endpoint && !endpoint->ifindex && same_address(&endpoint->node, node);
}

/* A stranger is told from a node first, so that it cannot have drops counted in a network. */
static __noinline int refuse(struct __sk_buff *skb, struct peer_key *node, __u32 network,
			     verdict judged)
{
	if (!bpf_map_lookup_elem(&peers, node))
		return drop(skb, NO_NETWORK, DROP_OVERLAY_STRANGER);
	return drop(skb, network, judged);
}

/* The connection with the outside that the packet is of, if it is alive. */
static __always_inline struct connection *known_outside(struct work *work, bool from_high)
{
	struct connection *known;

	name_connection(&work->key, &work->flow, from_high);
	known = connection_at(&work->key);
	return known && !is_reopened(known, &work->flow.transport) &&
			       !is_over(known, work->flow.transport.protocol, work->now) ?
		       known :
		       NULL;
}

/* Whether the error at hand, which was read, is about a packet to the outside that left by the node that
 * sent this. Whoever it comes from, it opens nothing. */
static __noinline bool error_came_in_there(struct work *work)
{
	const struct flow *quoted = &work->quote;
	struct connection *known;

	name_connection(&work->key, quoted, is_higher(quoted));
	known = connection_at(&work->key);
	return known && known->flags & CONNECTION_OUTSIDE &&
	       same_address(&known->node, &work->node.address);
}

/* The packet's sender is outside, behind the node that sent it. */
static __always_inline void note_sender_outside(struct work *work)
{
	__builtin_memset(&work->source, 0, sizeof(work->source));
	work->source.node = work->node.address;
	work->outside = OUTSIDE_SENDER;
}

/* Whether the sender, who is no pod, may have come in by the node that sent this: the network has
 * services that the outside reaches, or a pod called the sender by that node; the address can be no
 * pod's, and a connection that is there came in, or left, by the same node. */
static __noinline bool came_in_there(struct work *work)
{
	struct entrance_key key = { .network = work->flow.network };
	struct connection *known;
	bool from_high;

	if (work->is_quoting) {
		if (!error_came_in_there(work))
			return false;
		note_sender_outside(work);
		return true;
	}
	from_high = is_higher(&work->flow);
	known = known_outside(work, from_high);
	if (known && !same_address(&known->node, &work->node.address))
		return false;
	work->may_enter = !!bpf_map_lookup_elem(&entrances, &key);
	if (!work->may_enter && !(known && known->flags & CONNECTION_OUTSIDE &&
				  !is_by_sender(known, from_high)))
		return false;
	if (reason_closed(work->flow.network, &work->flow.source) != FINE)
		return false;
	note_sender_outside(work);
	return true;
}

/* Whether this is an answer of a service whose backend is in another network, and on the node that sent
 * it. */
static __noinline bool answers_across(struct work *work)
{
	struct flow *flow = &work->flow;
	struct connection *known;
	struct endpoint *from;

	if (flow->transport.part == PART_LATER)
		find_first(flow, work, 0);
	name_connection(&work->key, flow, is_higher(flow));
	known = connection_at(&work->key);
	if (!known || !(known->flags & CONNECTION_ACROSS) || known->flags & OF_SERVICE ||
	    is_by_sender(known, is_higher(flow)))
		return false;
	recall_across(work, known);
	from = endpoint_of(work->to.network, &work->to.address);
	if (!lives_on(from, &work->node.address))
		return false;
	work->across = ACROSS_THERE;
	work->client_network = flow->network;
	work->client = flow->destination;
	note_end(&work->source, from);
	return true;
}

/* Whether a service leads the packet to a pod of this node in another network. */
static __always_inline bool leads_across(struct work *work)
{
	const struct transport *t = &work->flow.transport;

	work->to = (struct translation){ .side = SIDE_BACKENDS };
	if (t->part == PART_LATER) {
		if (!find_first(&work->flow, work, 0))
			return false;
		work->wire.transport = work->flow.transport;
	}
	if (!can_be_served(t))
		return false;
	recall_backend(work);
	if (choose_backend(&work->flow, &work->to) != FINE || !work->to.is_service ||
	    work->to.network == work->flow.network)
		return false;
	work->to.is_service = 0;
	note_client(work, ACROSS_HERE);
	return true;
}

static __always_inline verdict find_both(struct work *work)
{
	struct endpoint *from = endpoint_of(work->flow.network, &work->flow.source);
	struct endpoint *to = endpoint_of(work->flow.network, &work->flow.destination);

	if (from ? !lives_on(from, &work->node.address) :
		   !answers_across(work) && !came_in_there(work))
		return DROP_OVERLAY_SPOOF;
	if (from)
		note_end(&work->source, from);
	if (!to || !to->ifindex)
		return DROP_NO_ENDPOINT;
	work->flow.table = to->table;
	note_end(&work->destination, to);
	return FINE;
}

/* The receiver says which place its network has; with that, the generation comes first. */
static __noinline verdict find_ends(struct work *work)
{
	verdict judged = find_both(work);

	if (judged != FINE)
		return judged;
	return read_generation(work) ? find_both(work) : DROP_CONNECTIONS_EXHAUSTED;
}

/* What becomes of the packet, GO_ON to the outside, or GO_ACROSS to another network. */
__noinline int slow_from_overlay(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	struct ethhdr *eth;
	verdict judged;

	if (!work || !bpf_map_lookup_elem(&peers, &work->node))
		return drop(skb, NO_NETWORK, DROP_OVERLAY_STRANGER);
	work->is_quoting = is_whole_error(&work->flow.transport) && read_error(skb, work);
	judged = find_ends(work);
	if (judged == DROP_NO_ENDPOINT && work->outside == OUTSIDE_NOBODY) {
		int action = leads_across(work) ? GO_ACROSS : answer_outside(skb);

		if (action != GO_TO_NODE)
			return action;
	}
	if (judged == FINE)
		judged = decide(skb, work);
	if (judged != FINE)
		return drop(skb, work->flow.network, judged);
	if (work->is_translated && rewrite(skb))
		return drop(skb, work->flow.network, DROP_KERNEL_REFUSED);
	eth = frame_start(skb, sizeof(*eth));
	return eth ? deliver_here(skb, eth, &work->destination.place) :
		     drop(skb, work->flow.network, DROP_MALFORMED);
}

/* Whether the packet comes from where its sender is. */
static __always_inline bool comes_from(const struct connection *known, bool from_high,
				       const struct address *node)
{
	const struct place *from = from_high ? &known->high : &known->low;

	return !from->ifindex && same_address(&known->node, node);
}

/* What becomes of the packet, or GO_ON to the slow path. */
__noinline int service_from_overlay(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	struct connection *known;
	struct ethhdr *eth;
	bool from_high;

	if (!work)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	known = through_service(work);
	from_high = is_higher(&work->flow);
	if (!known || !comes_from(known, from_high, &work->node.address)) {
		begin_work(work, work->now);
		return GO_ON;
	}
	note_with_lead(skb, work, known);
	if (work->is_translated && rewrite(skb))
		return drop(skb, work->flow.network, DROP_KERNEL_REFUSED);
	eth = frame_start(skb, sizeof(*eth));
	return eth ? deliver_here(skb, eth, &work->destination.place) :
		     drop(skb, work->flow.network, DROP_MALFORMED);
}

/* `known` is the connection of the packet, if it was looked up. */
static __always_inline int take_longer_path(struct __sk_buff *skb, const struct peer_key *node,
					    const struct flow *flow,
					    const struct connection *known, __u64 now)
{
	struct work *work = work_at_hand();
	int action = GO_ON;

	if (!work)
		return drop(skb, NO_NETWORK, DROP_KERNEL_REFUSED);
	copy_flow(&work->wire, flow);
	begin_work(work, now);
	work->is_unknown = !known && is_simple(&flow->transport);
	work->node = *node;
	if (may_be_across(known, flow)) {
		action = pass_across(skb);
		if (action == GO_BACK || action == GO_HERE)
			return hand_across(skb);
	} else if (known && known->flags & OF_SERVICE) {
		action = service_from_overlay(skb);
	}
	if (action != GO_ON)
		return action;
	action = slow_from_overlay(skb);
	if (action == GO_ACROSS)
		return take_across(skb);
	return action == GO_ON ? leave_for_another(skb) : action;
}

/* A packet of a connection that is decided: all that most packets ever need; GO_ON where it is not. The
 * place is taken from the entry first, as in from_pod. */
static __always_inline int hand_over_at_once(struct __sk_buff *skb, const struct peer_key *node,
					     struct flow *flow, struct connection *known,
					     bool from_high, __u64 now)
{
	struct place to = place_of_receiver(known, from_high);
	struct network *network;
	struct ethhdr *eth;
	__u32 table;

	barrier();
	table = known->table;
	network = network_at(table);
	if (!network || network->network != flow->network ||
	    !comes_from(known, from_high, &node->address) ||
	    !holds(known, network, &flow->transport, now) ||
	    (known->flags & OF_SERVICE &&
	     (!is_served_at_once(known, flow, from_high, now) ||
	      (!is_routine(known, &flow->transport) &&
	       !note_on_both_sides(skb, flow, known)))))
		return GO_ON;
	if (!(known->flags & OF_SERVICE))
		note(skb, flow, known, from_high, now);
	else if (serve(skb, flow, known, table))
		return drop(skb, flow->network, DROP_KERNEL_REFUSED);
	eth = frame_start(skb, sizeof(*eth));
	return eth ? deliver_here(skb, eth, &to) : drop(skb, flow->network, DROP_MALFORMED);
}

static __always_inline int hand_over(struct __sk_buff *skb, struct peer_key *node,
				     struct flow *flow)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	bool from_high = is_higher(flow);
	struct connection *known = NULL;
	struct connection_key key;
	int action;

	if (is_simple(&flow->transport)) {
		name_connection(&key, flow, from_high);
		known = connection_at(&key);
	}
	action = known ? hand_over_at_once(skb, node, flow, known, from_high, now) : GO_ON;
	return action == GO_ON ? take_longer_path(skb, node, flow, known, now) : action;
}

/* Reads a packet of IPv4 into `flow`. */
static __always_inline int ipv4_from_overlay(struct __sk_buff *skb, struct peer_key *node,
					     struct flow *flow)
{
	struct ethhdr *eth = frame_start(skb, IPV4_FRAME);
	struct iphdr *ip;
	verdict judged;

	if (!eth)
		return refuse(skb, node, flow->network, DROP_MALFORMED);
	ip = ipv4_header(eth);
	judged = check_ipv4(skb, ip);
	if (judged == FINE)
		judged = read_ipv4(skb, ip, &flow->transport);
	if (judged != FINE)
		return refuse(skb, node, flow->network, judged);
	flow->source = ipv4_mapped(ip->saddr);
	flow->destination = ipv4_mapped(ip->daddr);
	return GO_ON;
}

/* The same for IPv6. */
static __always_inline int ipv6_from_overlay(struct __sk_buff *skb, struct peer_key *node,
					     struct flow *flow)
{
	struct ethhdr *eth = frame_start(skb, IPV6_FRAME);
	struct ipv6hdr *ip;
	verdict judged;

	if (!eth)
		return refuse(skb, node, flow->network, DROP_MALFORMED);
	ip = ipv6_header(eth);
	flow->source = ipv6_address(&ip->saddr);
	flow->destination = ipv6_address(&ip->daddr);
	judged = check_ipv6(skb, ip, &flow->source, &flow->destination);
	if (judged == FINE)
		judged = read_ipv6(skb, ip, &flow->transport);
	if (judged != FINE)
		return refuse(skb, node, flow->network, judged);
	leave_link(ip);
	return GO_ON;
}

static __always_inline __u64 tunnel_family(void)
{
	return UNDERLAY_IPV4 ? 0 : BPF_F_TUNINFO_IPV6;
}

/* Whether the packet was sent to the address by which nodes meet. The tunnel's socket hears at every
 * address of this node, and some of them, a gateway of plain pods or a second uplink's, are no node's to
 * those who keep pods from nodes. */
static __always_inline bool is_to_underlay(const struct bpf_tunnel_key *tunnel)
{
	const __u32 *ip = tunnel->local_ipv6;

	if (UNDERLAY_IPV4)
		return tunnel->local_ipv4 == UNDERLAY_IPV4;
	return ip[0] == UNDERLAY_IPV6[0] && ip[1] == UNDERLAY_IPV6[1] &&
	       ip[2] == UNDERLAY_IPV6[2] && ip[3] == UNDERLAY_IPV6[3];
}

/* Which node sent the packet, and for which network. Says whether it came through the tunnel; what
 * came through one of the other family, or to another address than nodes speak to, did not. */
static __noinline bool read_tunnel(struct __sk_buff *skb, struct peer_key *node, __u32 *network)
{
	struct bpf_tunnel_key tunnel = {};
	const __u32 *ip = tunnel.remote_ipv6;

	if (bpf_skb_get_tunnel_key(skb, &tunnel, sizeof(tunnel), tunnel_family()) ||
	    !is_to_underlay(&tunnel))
		return false;
	*network = tunnel.tunnel_id;
	node->address = UNDERLAY_IPV4 ?
				ipv4_mapped(bpf_htonl(tunnel.remote_ipv4)) :
				(struct address){ .words = { ip[0], ip[1], ip[2], ip[3] } };
	return true;
}

SEC("classifier")
int from_overlay(struct __sk_buff *skb)
{
	struct peer_key node = {};
	struct flow flow = {};
	struct ethhdr *eth;
	int action;

	if (!read_tunnel(skb, &node, &flow.network))
		return drop(skb, NO_NETWORK, DROP_OVERLAY_STRANGER);
	if (skb->vlan_present)
		return refuse(skb, &node, flow.network, DROP_VLAN_TAGGED);
	eth = frame_start(skb, sizeof(*eth));
	if (!eth)
		return refuse(skb, &node, flow.network, DROP_MALFORMED);
	switch (eth->h_proto) {
	case bpf_htons(ETH_P_IP):
		action = ipv4_from_overlay(skb, &node, &flow);
		break;
	case bpf_htons(ETH_P_IPV6):
		action = ipv6_from_overlay(skb, &node, &flow);
		break;
	default:
		return refuse(skb, &node, flow.network, DROP_NOT_IP);
	}
	return action == GO_ON ? hand_over(skb, &node, &flow) : action;
}

char LICENSE[] SEC("license") = "GPL";
