/* SPDX-License-Identifier: GPL-2.0 */
/* Reading a frame: bounds first, and nothing of it is believed before it was checked. */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"

/* What a check says of a packet: fine, or why it must be dropped. */
typedef enum drop_reason verdict;
#define FINE DROP_UNKNOWN

/* What a part of a program says that leaves a packet to the next part; any other value is what
 * becomes of the packet. */
#define GO_ON -1

/* Keeps the compiler from moving reads and writes from one side to the other. */
#define barrier() asm volatile("" ::: "memory")

/* Read afresh each time: the compiler would keep the low half only, which the verifier takes for
 * a number. */
static __always_inline void *linear_start(struct __sk_buff *skb)
{
	return (void *)(long)*(volatile __u32 *)&skb->data;
}

static __always_inline void *linear_end(struct __sk_buff *skb)
{
	return (void *)(long)*(volatile __u32 *)&skb->data_end;
}

/* The first `size` bytes of the frame, or NULL. A sender may have put them anywhere but into the
 * linear part; pulling them there is rare and makes older pointers into the packet invalid. */
static __always_inline void *frame_start(struct __sk_buff *skb, __u32 size)
{
	void *start = linear_start(skb);

	if (start + size <= linear_end(skb))
		return start;
	if (bpf_skb_pull_data(skb, size))
		return NULL;
	start = linear_start(skb);
	return start + size <= linear_end(skb) ? start : NULL;
}
