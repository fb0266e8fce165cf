/* SPDX-License-Identifier: GPL-2.0 */
/* The maps, shared by all programs through their pins. A hash's buckets are allocated up front
 * (16 bytes each), its entries only when they are put in: an idle node pays about 4 MB here. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"

/* Pods of this node, by the host side of their interface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct interface_key);
	__type(value, struct interface);
} interfaces SEC(".maps");

/* Every endpoint of every network that is present on this node. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 262144);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct endpoint_key);
	__type(value, struct endpoint);
} endpoints SEC(".maps");

/* Underlay addresses of the other nodes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct peer_key);
	__type(value, struct peer);
} peers SEC(".maps");

/* Where the pods of a network find the agent of this node. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct door_key);
	__type(value, struct doors);
} doors SEC(".maps");

/* What was dropped, by network and reason. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct drop_key);
	__type(value, struct drop_counter);
} drops SEC(".maps");
