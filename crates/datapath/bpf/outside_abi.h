/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel programs and the agent share of the outside; the Rust side is crates/abi. */
#pragma once

#include "abi.h"
#include "service_abi.h"

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
	__u16 table; /* of the network in `networks`, where it is for all */
	__u8 for_all; /* whether pods of other nodes leave by it, too */
	__u8 reserved;
};

struct egress_node_key {
	__u32 network;
	__u32 ipv6;
};

/* Another node that the pods of a network leave by. */
struct egress_node {
	struct address node;
};

/* An address of the outside that this node answers for. */
struct held_key {
	struct address address;
};

struct held {
	__u32 network; /* that it is for */
};

/* Clients that a service at such an address lets in. */
struct source_key {
	__u32 prefix; /* how many bits of the rest count */
	struct service_key service;
	struct address client;
};

struct source {
	__u32 reserved;
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

/* A port that its owner opened to the pods of a network, at an address that is closed otherwise. Node
 * ports are at the address that is none; and with neither network nor port, an address of a node at
 * which they are reached. */
struct opening_key {
	__u32 network;
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 reserved;
};

struct opening {
	__u32 is_here; /* this node answers for the address; of node ports, nothing */
};

/* Where nodes and the pods of no tenant are, as seen from this node. */
enum infra_place {
	INFRA_NOWHERE, /* whoever is there is closed to all */
	INFRA_HERE,    /* this node itself, and its pods */
	INFRA_THERE,
};

struct infra_key {
	__u32 prefix; /* how many bits of the rest count */
	struct address address;
};

struct infra {
	__u16 place; /* enum infra_place */
	__u16 is_node; /* and no pod */
};

/* The ports that Kubernetes gives to services at nodes. */
#define FIRST_NODE_PORT 30000
#define LAST_NODE_PORT 32767
