/* SPDX-License-Identifier: GPL-2.0 */
/* The maps of the outside. What is known of single connections lies among those of their network. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "outside_abi.h"

/* The networks of this node that have a way to the outside. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_INTERFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct egress_key);
	__type(value, struct egress);
} egresses SEC(".maps");

/* What leads from outside to a service. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct node_port_key);
	__type(value, struct node_port);
} node_ports SEC(".maps");

/* The networks of those services. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_INTERFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct entrance_key);
	__type(value, struct entrance);
} entrances SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct closed_key);
	__type(value, struct closed);
} outside_closed SEC(".maps");
