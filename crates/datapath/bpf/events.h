/* SPDX-License-Identifier: GPL-2.0 */
/* What is told to whoever watches. When nobody does, it costs a look at one word, and only for a
 * packet that is dropped or that opens or closes a connection. */
#pragma once

#include "ipv4.h"
#include "ipv6.h"
#include "maps.h"
#include "policy_maps.h"

static __always_inline bool is_watched(void)
{
	__u32 first = 0;
	__u32 *watched = bpf_map_lookup_elem(&watchers, &first);

	return watched && *watched;
}

/* Room for an event, or NULL when whoever watches has fallen behind. */
static __always_inline struct event *new_event(struct __sk_buff *skb, __u32 network,
					       enum event_kind kind)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return NULL;
	__builtin_memset(event, 0, sizeof(*event));
	event->at = bpf_ktime_get_ns();
	event->network = network;
	event->ifindex = skb->ifindex;
	event->kind = kind;
	return event;
}

static __always_inline void describe_ipv4(struct __sk_buff *skb, struct event *event)
{
	struct iphdr ip = {};

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return;
	event->source = ipv4_mapped(ip.saddr);
	event->destination = ipv4_mapped(ip.daddr);
	event->protocol = ip.protocol;
	if (ip.ihl == 5 && !(ip.frag_off & bpf_htons(IPV4_OFFSET_BITS)))
		bpf_skb_load_bytes(skb, IPV4_FRAME, &event->source_port, 4);
}

static __always_inline void describe_ipv6(struct __sk_buff *skb, struct event *event)
{
	struct ipv6hdr ip = {};

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return;
	event->source = ipv6_address(&ip.saddr);
	event->destination = ipv6_address(&ip.daddr);
	event->protocol = ip.nexthdr;
	if (!is_extension(ip.nexthdr))
		bpf_skb_load_bytes(skb, IPV6_FRAME, &event->source_port, 4);
}

/* Which rule refused a packet that policy did not let pass. */
static __always_inline void describe_refusal(struct event *event, __u32 reason)
{
	struct refusal *refusal = refusal_at_hand();

	if (!refusal ||
	    (reason != DROP_POLICY_DENIED_EGRESS && reason != DROP_POLICY_DENIED_INGRESS))
		return;
	event->egress_rule = refusal->egress_rule;
	event->ingress_rule = refusal->ingress_rule;
}

static __noinline void tell_drop(struct __sk_buff *skb, __u32 network, enum drop_reason reason)
{
	struct event *event = new_event(skb, network, EVENT_DROP);

	if (!event)
		return;
	event->reason = reason;
	describe_refusal(event, reason);
	if (skb->protocol == bpf_htons(ETH_P_IP))
		describe_ipv4(skb, event);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		describe_ipv6(skb, event);
	bpf_ringbuf_submit(event, 0);
}
