/* SPDX-License-Identifier: GPL-2.0 */
/* The maps, shared by all programs through their pins. A hash's buckets are allocated up front
 * (16 bytes each), its entries only when they are put in: an idle node pays about 4 MB here. Each
 * network that has a pod on this node adds a table of connections, which is allocated whole. */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"

/* Pods of this node, by the host side of their interface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_INTERFACES);
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

/* Services of the cluster's own that the pods of a network reach through the agent: to its port. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct service_door_key);
	__type(value, struct service_door);
} service_doors SEC(".maps");

/* And back from its port to what the pods see. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct service_front_key);
	__type(value, struct service_front);
} service_fronts SEC(".maps");

/* What was dropped, by network and reason. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct drop_key);
	__type(value, struct drop_counter);
} drops SEC(".maps");

/* What each pod of this node has sent and received, by the slot of its interface. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_INTERFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct traffic);
} traffic SEC(".maps");

/* One table of connections for each network that has a pod on this node. A network that opens more
 * than its table holds loses its own least used ones and nobody else's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_INTERFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_LRU_HASH);
		__uint(max_entries, CONNECTIONS_PER_NETWORK);
		__uint(key_size, sizeof(struct connection_key));
		__uint(value_size, sizeof(struct connection));
	});
} connections SEC(".maps");

/* Drops, and connections that come and go, for whoever watches. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} events SEC(".maps");

/* Whether anybody watches: zero or one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} watchers SEC(".maps");
