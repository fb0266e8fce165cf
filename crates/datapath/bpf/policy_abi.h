/* SPDX-License-Identifier: GPL-2.0 */
/* The part of abi.h that is about policy. The Rust side is crates/abi/src/policy.rs. Every number
 * bears the bank it was written in. */
#pragma once

#define NO_BANK 0
#define SECOND_BANK 0x80000000
#define TIER_NETWORK_POLICY 3

struct policy_end_key {
	__u32 network;
	struct address address;
	__u32 bank;
};

struct policy_outside_key {
	__u32 prefix;
	__be32 tenant;
	struct address address;
};

struct policy_identity {
	__u32 tenant;
	__u32 ingress; /* sets of rules; 0: none */
	__u32 egress;
};

struct policy_column_key {
	__u32 set;
	__u32 identity; /* of the other end; 0: every other */
};

struct policy_port_key {
	__u32 prefix;
	__be32 column;
	__u8 protocol; /* 0: all that have no ports */
	__u8 port[2];
	__u8 reserved;
};

struct policy_verdict {
	__u32 rule;
	__u8 accept;
	__u8 tier;
	__u8 reserved[2];
};
