// SPDX-License-Identifier: GPL-2.0
/* The connections of layout 2, for the test that takes them over: a table for each network. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_LRU_HASH);
		__uint(max_entries, 16384);
		__uint(key_size, 44);
		__uint(value_size, 48);
	});
} connections SEC(".maps");

char LICENSE[] SEC("license") = "GPL";
