/* SPDX-License-Identifier: GPL-2.0 */
/* The gateway answers a ping. The request itself is turned round: what it covers hardly changes. */
#pragma once

#include "icmp.h"

#define IPV4_ECHO_FRAME (IPV4_FRAME + sizeof(struct icmp_header))
#define IPV6_ECHO_FRAME (IPV6_FRAME + sizeof(struct icmp_header))

static __always_inline bool is_for_gateway_ipv4(const struct iphdr *ip)
{
	return ip->daddr == gateway_ipv4() && ip->protocol == ICMP_PROTOCOL &&
	       ip->ihl * 4 == sizeof(*ip) && !(ip->frag_off & bpf_htons(IPV4_FRAGMENT_BITS));
}

static __always_inline bool is_for_gateway_ipv6(const struct ipv6hdr *ip,
						const struct address *destination)
{
	struct address gateway = gateway_ipv6();

	return ip->nexthdr == IPV6_ICMP && same_address(destination, &gateway);
}

/* Whether it was a request, which is now its answer. Type and code are one word of the sum. */
static __always_inline bool turn_into_reply(struct icmp_header *icmp, __u8 request, __u8 reply)
{
	if (icmp->type != request || icmp->code != 0)
		return false;
	icmp->checksum = changed(icmp->checksum, bpf_htons(request << 8), bpf_htons(reply << 8));
	icmp->type = reply;
	return true;
}

static __always_inline int answer_echo_ipv4(struct __sk_buff *skb, const struct interface *own)
{
	struct ethhdr *eth = frame_start(skb, IPV4_ECHO_FRAME);
	struct iphdr *ip;

	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	ip = ipv4_header(eth);
	if (!turn_into_reply((void *)(ip + 1), ICMP_ECHO, ICMP_ECHO_REPLY))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	ip->daddr = ip->saddr;
	ip->saddr = gateway_ipv4();
	address_to_pod(eth, own, bpf_htons(ETH_P_IP));
	return bpf_redirect(skb->ifindex, 0);
}

static __always_inline int answer_echo_ipv6(struct __sk_buff *skb, const struct interface *own)
{
	struct ethhdr *eth = frame_start(skb, IPV6_ECHO_FRAME);
	struct ipv6hdr *ip;
	struct in6_addr asker;

	if (!eth)
		return drop(skb, own->network, DROP_MALFORMED);
	ip = ipv6_header(eth);
	if (!turn_into_reply((void *)(ip + 1), ICMPV6_ECHO, ICMPV6_ECHO_REPLY))
		return drop(skb, own->network, DROP_NO_ENDPOINT);
	asker = ip->saddr;
	ip->saddr = ip->daddr;
	ip->daddr = asker;
	address_to_pod(eth, own, bpf_htons(ETH_P_IPV6));
	return bpf_redirect(skb->ifindex, 0);
}
