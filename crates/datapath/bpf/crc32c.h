/* SPDX-License-Identifier: GPL-2.0 */
/* SCTP's checksum after a few bytes of the packet changed. A cyclic checksum is linear: what a
 * change adds does not depend on the rest of the packet, only on how much of it follows. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define CRC32C 0x82f63b78

/* What 1, 2, 4, 8… zero bytes make of a sum is a product with one of these. */
static const __u32 after_zeros[16] = {
	0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18, 0x510ac59a,
	0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a,
	0x35d73a62, 0x28461564, 0xbf455269, 0xe2ea32dc,
};

static __always_inline __u32 shifted(__u32 sum)
{
	return sum >> 1 ^ (CRC32C & -(sum & 1));
}

static __always_inline __u32 product(__u32 a, __u32 b)
{
	__u32 sum = 0;

#pragma clang loop unroll(disable)
	for (int bit = 31; bit >= 0; bit--) {
		sum ^= b & -(a >> bit & 1);
		b = shifted(b);
	}
	return sum;
}

/* What the change of four bytes, of which `difference` is the little-endian difference, adds to the
 * sum of a packet in which `following` bytes come after them. */
static __noinline __u32 crc32c_change(__u32 difference, __u32 following)
{
	__u32 sum = difference;

#pragma clang loop unroll(disable)
	for (int bit = 0; bit < 32; bit++)
		sum = shifted(sum);
#pragma clang loop unroll(disable)
	for (int place = 0; place < 16; place++) {
		__u32 longer = product(after_zeros[place], sum);
		__u32 chosen = -(following >> place & 1);

		sum = (longer & chosen) | (sum & ~chosen);
	}
	return sum;
}
