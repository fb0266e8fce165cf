/* SPDX-License-Identifier: GPL-2.0 */
/* Addresses of both families in one form. */
#pragma once

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"

static __always_inline struct address ipv4_mapped(__be32 ip)
{
	return (struct address){ .words = { 0, 0, bpf_htonl(0xffff), ip } };
}

static __always_inline __be32 ipv4_of(const struct address *address)
{
	return address->words[3];
}

static __always_inline bool same_address(const struct address *a, const struct address *b)
{
	return a->words[3] == b->words[3] && a->words[2] == b->words[2] &&
	       a->words[1] == b->words[1] && a->words[0] == b->words[0];
}

/* An unused field. */
static __always_inline bool is_none(const struct address *a)
{
	return !(a->words[0] | a->words[1] | a->words[2] | a->words[3]);
}

/* MACs lie at even offsets everywhere here, so that they are read and written in three steps. */
static __always_inline bool same_mac(const void *a, const void *b)
{
	const __u16 *x = a, *y = b;

	return x[2] == y[2] && x[1] == y[1] && x[0] == y[0];
}

static __always_inline void copy_mac(void *to, const void *from)
{
	const __u16 *source = from;
	__u16 *target = to;

	target[0] = source[0];
	target[1] = source[1];
	target[2] = source[2];
}

static __always_inline void copy_gateway_mac(void *to)
{
	const __u8 gateway[6] __attribute__((aligned(2))) = GATEWAY_MAC;

	copy_mac(to, gateway);
}

static __always_inline bool is_group_mac(const __u8 *mac)
{
	return mac[0] & 1;
}

/* 224.0.0.0/4 and 240.0.0.0/4 with the limited broadcast: none of them names one endpoint. */
static __always_inline bool is_group_ipv4(__be32 ip)
{
	return (bpf_ntohl(ip) >> 29) == 7;
}
