/* SPDX-License-Identifier: GPL-2.0 */
/* The maps, shared by all programs through their pins. A hash's buckets are allocated up front
 * (16 bytes for each entry that it may have), its entries only when they are put in. An idle node
 * pays about 13 MB here and 0.2 for each CPU, 9 of it for endpoints, connections and turns; policy
 * adds 7 and services 5. A network costs nothing but the entries that it uses. */
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

/* The same once more, each at its index modulo the number of places: most packets find theirs here,
 * without a search. Where two would have one place, the second is in `interfaces` alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_INTERFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct near_interface);
} near_interfaces SEC(".maps");

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

/* Every network that has a pod on this node, by its place. Only the agent writes here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_INTERFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, struct network);
} networks SEC(".maps");

/* The connections of all networks. None has more than its share: `turns` has as many places. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_CONNECTIONS);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct connection_key);
	__type(value, struct connection);
} connections SEC(".maps");

/* The connections of each network in the order in which they came, a page of places at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_CONNECTIONS / 4);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, struct turns_key);
	__type(value, struct turns);
} turns SEC(".maps");

/* How many turns each network has taken, by its place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_INTERFACES);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__type(key, __u32);
	__type(value, __u32);
} rings SEC(".maps");

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
