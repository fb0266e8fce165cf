/* SPDX-License-Identifier: GPL-2.0 */
/* What a packet says of its connection by itself: that it opens it, ends it or breaks it off. And how
 * long ago something was. */
#pragma once

#include "transport.h"

#define SECONDS(n) ((n) * 1000000000ULL)

/* Another CPU may have seen a later packet than ours, and then none has passed. */
static __always_inline __u64 passed(__u64 since, __u64 now)
{
	return now > since ? now - since : 0;
}

static __always_inline bool is_opening(const struct transport *t)
{
	const __u8 all = TCP_SYN | TCP_ACK | TCP_FIN | TCP_RST;

	switch (t->protocol) {
	case TCP_PROTOCOL:
		return (t->signs & all) == TCP_SYN;
	case SCTP_PROTOCOL:
		return t->signs == SCTP_INIT;
	case ICMP_PROTOCOL:
		return t->signs == ICMP_ECHO;
	case IPV6_ICMP:
		return t->signs == ICMPV6_ECHO;
	default:
		return true;
	}
}

static __always_inline bool breaks_off(const struct transport *t)
{
	if (t->protocol == TCP_PROTOCOL)
		return t->signs & TCP_RST;
	return t->protocol == SCTP_PROTOCOL &&
	       (t->signs == SCTP_ABORT || t->signs == SCTP_SHUTDOWN_COMPLETE);
}

static __always_inline bool is_last_word(const struct transport *t)
{
	if (t->protocol == TCP_PROTOCOL)
		return t->signs & TCP_FIN;
	return t->protocol == SCTP_PROTOCOL && t->signs == SCTP_SHUTDOWN;
}
