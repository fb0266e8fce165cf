/* SPDX-License-Identifier: GPL-2.0 */
/* The maps of services. A service has one entry by its address and port, and by its number pages
 * of slots and of backends: as many as it needs, each replaced in one step. Their buckets cost 3 MB
 * up front, and the clients that are kept together, whose entries are too, about 2. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "service_abi.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct service_page);
	__type(value, struct slots);
} service_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct service_page);
	__type(value, struct backends);
} service_backends SEC(".maps");

/* Clients that are led to the same backend again. When there are too many, the least recent ones
 * are led like anybody else. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct affinity_key);
	__type(value, struct affinity);
} service_affinity SEC(".maps");
