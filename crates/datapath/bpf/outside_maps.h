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

/* Those that leave by another node. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * MAX_INTERFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct egress_node_key);
	__type(value, struct egress_node);
} egress_nodes SEC(".maps");

/* The addresses of the outside that this node answers for. What comes there is no node's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct held_key);
	__type(value, struct held);
} held_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct source_key);
	__type(value, struct source);
} service_sources SEC(".maps");

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

/* What of it is open all the same, to whom. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct opening_key);
	__type(value, struct opening);
} openings SEC(".maps");

/* Nodes, and the pods of no tenant. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 131072);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct infra_key);
	__type(value, struct infra);
} infra_ranges SEC(".maps");

/* The networks of this node whose pods reach them, and what they leave by. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_INTERFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct egress_key);
	__type(value, struct egress);
} infra_exits SEC(".maps");
