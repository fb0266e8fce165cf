/* SPDX-License-Identifier: GPL-2.0 */
/* The maps of policy, as crates/policy fills them. Two whole sets of entries, the banks, may lie
 * beside each other; the one that counts is named in one word, so that a set is exchanged at once.
 * Tries are allocated entry by entry; the buckets of the hashes cost about 13 MB up front. */
#pragma once

#include "maps.h"

/* The bank that counts, or NO_BANK. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} policy_bank SEC(".maps");

/* The identity of each address of a pod. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct policy_end_key);
	__type(value, __u32);
} policy_ends SEC(".maps");

/* The identity of addresses that are no pod's, as a tenant sees them. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct policy_outside_key);
	__type(value, __u32);
} policy_outside SEC(".maps");

/* What each identity is subject to. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct policy_identity);
} policy_identities SEC(".maps");

/* Which column of a set an identity reads. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 524288);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct policy_column_key);
	__type(value, __u32);
} policy_columns SEC(".maps");

/* The verdicts of each column. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1048576);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct policy_port_key);
	__type(value, struct policy_verdict);
} policy_ports SEC(".maps");

/* The rules that refused the connection of the packet at hand, for whoever tells of its drop. */
struct refusal {
	__u32 egress_rule;
	__u32 ingress_rule;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct refusal);
} refusals SEC(".maps");

static __always_inline struct refusal *refusal_at_hand(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&refusals, &first);
}
