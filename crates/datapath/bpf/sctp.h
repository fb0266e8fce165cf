/* SPDX-License-Identifier: GPL-2.0 */
/* Other ports in a packet of SCTP, with its checksum right, also one that is still to be made by the one who
 * sends it out. */
#pragma once

#include "crc32c.h"
#include "translate.h"

#define SCTP_CHECKSUM 8

/* The bytes of a number as they lie in SCTP's header, lowest first. */
static __always_inline __u32 lowest_first(__u32 number)
{
	return bpf_htonl(__builtin_bswap32(number));
}

/* The checksum covers ports and no addresses. One of zero is still to be made. */
static __always_inline long translate_sctp(struct __sk_buff *skb, const struct transport *from,
					   const struct ports *is)
{
	struct ports was = { .source = from->source_port, .destination = from->destination_port };
	__u32 at = from->at, sum, change;

	change = *(__u32 *)&was ^ *(const __u32 *)is;
	if (!change)
		return 0;
	if (bpf_skb_load_bytes(skb, at + SCTP_CHECKSUM, &sum, sizeof(sum)))
		return -1;
	if (sum) {
		change = crc32c_change(lowest_first(change), from->size - sizeof(*is));
		sum ^= lowest_first(change);
	}
	return bpf_skb_store_bytes(skb, at + SCTP_CHECKSUM, &sum, sizeof(sum), 0) ||
	       bpf_skb_store_bytes(skb, at, is, sizeof(*is), 0);
}
