/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel programs and the agent share of the outside; the Rust side is crates/abi. */
#pragma once

#include "abi.h"

struct egress_key {
	__u32 network;
};

/* What the pods of a network leave by: the addresses that the outside sees, and the ports that are
 * this network's alone there. */
struct egress {
	struct address ipv4; /* unused: nothing of the family leaves */
	struct address ipv6;
	__u16 first_port;
	__u16 ports; /* how many, from the first on */
	__u8 reserved[4];
};

/* An address and port of this node that leads to a service. */
struct node_port_key {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 reserved;
};

struct node_port {
	__u32 network; /* of the service, which is there at the address that is none */
};

/* A network with services that the outside reaches. */
struct entrance_key {
	__u32 network;
};

struct entrance {
	__u32 table; /* of the network in `networks` */
};

/* Addresses that nothing leaves for: of one network's pods, or of any. */
struct closed_key {
	__u32 prefix; /* how many bits of the rest count */
	__be32 network; /* NO_NETWORK: any */
	struct address address;
};

struct closed {
	__u32 reason; /* enum drop_reason */
};
