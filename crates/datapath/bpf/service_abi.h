/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel programs and the agent share of services; the Rust side is crates/abi. */
#pragma once

#include "abi.h"

#define SLOTS_PER_PAGE 256
#define BACKENDS_PER_PAGE 16

struct service_key {
	__u32 network;
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 side; /* enum side */
};

/* Whose packets a service leads. */
enum side {
	SIDE_CLIENTS = 0,  /* those of pods of this node */
	SIDE_BACKENDS = 1, /* those that other nodes send, to pods of this node in another network */
	SIDE_OUTSIDE = 2,  /* those of whoever is in no network */
};

struct service {
	__u32 id;
	__u32 slots;	/* a power of two; zero: nobody takes its connections */
	__u32 affinity; /* in seconds; zero: none */
};

struct service_page {
	__u32 service;
	__u32 page;
};

struct slots {
	__u16 backends[SLOTS_PER_PAGE];
};

struct backend {
	__u32 network;
	struct address address;
	__be16 port;
	__u8 reserved[2];
};

struct backends {
	struct backend at[BACKENDS_PER_PAGE];
};

struct affinity_key {
	__u32 service;
	struct address client;
};

/* Where a client of a service was led. */
struct affinity {
	__u64 seen; /* nanoseconds of the monotonic clock */
	struct address address;
	__be16 port;
	__u16 place;
	__u8 reserved[4];
};
