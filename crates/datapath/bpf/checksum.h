/* SPDX-License-Identifier: GPL-2.0 */
/* Internet checksums of what we write ourselves. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* The sum over `size` bytes, a multiple of four, on top of `sum`. */
static __always_inline __u32 add_up(const void *bytes, __u32 size, __u32 sum)
{
	return bpf_csum_diff(NULL, 0, (void *)bytes, size, sum);
}

/* The checksum after a word of what it covers changed from `was` to `is`. */
static __always_inline __u16 changed(__u16 checksum, __u16 was, __u16 is)
{
	return fold((__u64)(__u16)~checksum + (__u16)~was + is);
}
