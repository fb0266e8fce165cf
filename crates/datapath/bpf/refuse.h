/* SPDX-License-Identifier: GPL-2.0 */
/* The words in which a client is refused: TCP's reset comes from where the client spoke to, everything
 * else hears "unreachable". */
#pragma once

#include "flow.h"
#include "tell.h"

#define ICMP_PROTOCOL_UNREACHABLE 2
#define ICMP_PORT_UNREACHABLE 3
#define ICMPV6_DESTINATION_UNREACHABLE 1
#define ICMPV6_NO_PORT 4
#define ICMPV6_PROBLEM 4
#define ICMPV6_UNKNOWN_HEADER 1

struct tcp_header {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledged;
	__u8 words; /* of the header, in the upper half */
	__u8 flags;
	__be16 window;
	__u16 checksum;
	__be16 urgent;
};

#define TCP_WORDS (sizeof(struct tcp_header) / 4 << 4)

/* What TCP's checksum covers beside the segment. IPv4 addresses in their longer form have the same
 * sum. */
static __always_inline __u32 tcp_pseudo_sum(const struct address *from, const struct address *to,
					    __u32 size)
{
	const struct pseudo_header pseudo = {
		.source = *from,
		.destination = *to,
		.length = bpf_htonl(size),
		.next_header = bpf_htonl(TCP_PROTOCOL),
	};

	return pseudo_sum(&pseudo);
}

/* Who acknowledged something is answered there; who did not is told that its words arrived. */
static __always_inline struct tcp_header reset_for(const struct tcp_header *was, __u32 size)
{
	__u32 said = size - (was->words >> 4) * 4 + !!(was->flags & TCP_SYN) + !!(was->flags & TCP_FIN);
	struct tcp_header is = {
		.source = was->destination,
		.destination = was->source,
		.words = TCP_WORDS,
		.flags = TCP_RST,
	};

	if (was->flags & TCP_ACK) {
		is.sequence = was->acknowledged;
	} else {
		is.flags |= TCP_ACK;
		is.acknowledged = bpf_htonl(bpf_ntohl(was->sequence) + said);
	}
	return is;
}

/* A checksum that the client left to be made later is the sum of the pseudo header alone, and the
 * answer's is left in the same way. */
static __always_inline __u16 reset_checksum(const struct flow *flow, const struct tcp_header *was,
					    const struct tcp_header *is)
{
	__u32 later = tcp_pseudo_sum(&flow->source, &flow->destination, flow->transport.size);
	__u32 sum = tcp_pseudo_sum(&flow->destination, &flow->source, sizeof(*is));

	if (was->checksum == (__u16)~fold(later))
		return ~fold(sum);
	return fold(add_up(is, sizeof(*is), sum));
}

static __always_inline bool turn_ipv4(struct __sk_buff *skb, const struct flow *flow)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = sizeof(ip) / 4,
		.tot_len = bpf_htons(sizeof(ip) + sizeof(struct tcp_header)),
		.ttl = GATEWAY_HOPS,
		.protocol = TCP_PROTOCOL,
		.saddr = ipv4_of(&flow->destination),
		.daddr = ipv4_of(&flow->source),
	};

	ip.check = fold(add_up(&ip, sizeof(ip), 0));
	return !bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0);
}

static __always_inline bool turn_ipv6(struct __sk_buff *skb, const struct flow *flow)
{
	struct ipv6hdr ip = {
		.version = 6,
		.payload_len = bpf_htons(sizeof(struct tcp_header)),
		.nexthdr = TCP_PROTOCOL,
		.hop_limit = GATEWAY_HOPS,
	};

	__builtin_memcpy(&ip.saddr, &flow->destination, sizeof(ip.saddr));
	__builtin_memcpy(&ip.daddr, &flow->source, sizeof(ip.daddr));
	return !bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0);
}

/* The reset goes back in the frame `eth`. */
static __always_inline int send_reset(struct __sk_buff *skb, const struct ethhdr *eth,
				      struct flow *flow)
{
	bool ipv6 = !is_mapped(&flow->source);
	__u32 at = ipv6 ? IPV6_FRAME : IPV4_FRAME;
	struct tcp_header was, is;

	if (bpf_skb_load_bytes(skb, at, &was, sizeof(was)) || was.flags & TCP_RST)
		return TC_ACT_SHOT;
	is = reset_for(&was, flow->transport.size);
	is.checksum = reset_checksum(flow, &was, &is);
	if (bpf_skb_change_tail(skb, at + sizeof(is), 0) ||
	    bpf_skb_store_bytes(skb, at, &is, sizeof(is), 0) ||
	    bpf_skb_store_bytes(skb, 0, eth, sizeof(*eth), 0) ||
	    !(ipv6 ? turn_ipv6(skb, flow) : turn_ipv4(skb, flow)))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

/* As much of the packet as goes back: its header, and of the next what an unfinished checksum
 * needs. */
#define REFUSED_IPV4 (sizeof(struct iphdr) + SCTP_HEADER)
#define REFUSED_IPV6 (sizeof(struct ipv6hdr) + SCTP_HEADER)

/* SCTP gives up only where the protocol is not spoken at all. */
static __always_inline struct icmp_header unreachable_ipv4(const struct flow *flow)
{
	return (struct icmp_header){
		.type = ICMP_UNREACHABLE,
		.code = flow->transport.protocol == SCTP_PROTOCOL ? ICMP_PROTOCOL_UNREACHABLE :
								    ICMP_PORT_UNREACHABLE,
	};
}

static __always_inline struct icmp_header unreachable_ipv6(const struct flow *flow)
{
	bool sctp = flow->transport.protocol == SCTP_PROTOCOL;

	return (struct icmp_header){
		.type = sctp ? ICMPV6_PROBLEM : ICMPV6_DESTINATION_UNREACHABLE,
		.code = sctp ? ICMPV6_UNKNOWN_HEADER : ICMPV6_NO_PORT,
	};
}
