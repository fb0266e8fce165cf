/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel programs and the agent share, as C. The Rust side is crates/abi; the test
 * tests/abi_layout.rs compares sizes, offsets and numbers of both. */
#pragma once

#include <linux/types.h>

#define MAX_SOURCES 8
#define INTERFACE_NAME_BYTES 16
#define NO_NETWORK 0
#define MAX_INTERFACES 4096
#define MAX_CONNECTIONS 262144

/* An IP address in network byte order; IPv4 is written as IPv4-mapped IPv6. */
struct address {
	__be32 words[4];
};

struct interface_key {
	__u32 ifindex;
};

/* What every packet needs comes first, in one line of the cache. */
struct interface {
	__u64 since; /* as of an endpoint */
	__u32 network;
	__u16 slot;  /* of its counters in `traffic` */
	__u16 table; /* of its network in `networks` */
	__u8 mac[6];
	__u8 source_count;
	__u8 serves_ipv6;
	char name[INTERFACE_NAME_BYTES];
	struct address sources[MAX_SOURCES];
};

/* An interface once more, where it is found by its index alone. */
struct near_interface {
	__u32 ifindex; /* zero: nobody is here */
	__u32 reserved;
	struct interface interface;
};

struct endpoint_key {
	__u32 network;
	struct address address;
};

struct endpoint {
	__u64 since; /* when it came to this place, by the monotonic clock; no connection is older */
	__u32 ifindex;
	struct address node;
	__u8 mac[6];
	__u16 slot; /* of an endpoint of this node: as of its interface */
	__u16 table;
	__u8 reserved[2];
};

/* A network that has a pod on this node, at its place in `networks`. */
struct network {
	__u32 generation; /* of what decisions hang on; zero never */
	__u32 network;
	__u32 share; /* how many connections it may have here */
	__u32 tenant; /* which the agent keeps here for itself */
};

struct peer_key {
	struct address address;
};

struct peer {
	__u32 reserved;
};

#define DOORS 2

struct door_key {
	__u32 network;
};

struct doors {
	struct address ipv4[DOORS];
	struct address ipv6[DOORS];
};

/* A service of the cluster's own, as the pods of a network see it. */
struct service_door_key {
	__u32 network;
	struct address address;
	__be16 port;
	__u8 datagrams; /* whether the port is of UDP; else it is of TCP */
	__u8 reserved;
};

struct service_door {
	__be16 listener; /* the agent's port */
	__u8 reserved[2];
};

/* The same the other way round. */
struct service_front_key {
	__u32 network;
	__be16 listener;
	__u8 reserved[2];
};

struct service_front {
	struct address address;
	__be16 port;
	__u8 datagrams;
	__u8 reserved;
};

struct drop_key {
	__u32 network;
	__u32 reason;
};

struct drop_counter {
	__u64 packets;
	__u64 bytes;
};

/* A connection, or a datagram that comes in fragments. The lower of both ends stands first, so that
 * one entry serves both directions; a datagram has the identification of its fragments in place of
 * the ports. */
struct connection_key {
	__u32 network;
	struct address low;
	struct address high;
	__be16 low_port;
	__be16 high_port;
	__u8 protocol;
	__u8 kind; /* enum entry_kind */
	__u8 reserved[2];
};

enum entry_kind {
	KIND_CONNECTION = 0,
	KIND_FRAGMENTS_OF_LOW = 1,
	KIND_FRAGMENTS_OF_HIGH = 2,
	KIND_OUTSIDE = 3, /* no connection: what comes from outside for a pod; of NO_NETWORK */
	/* The same, of what comes to the lower or the higher end from this very node (loop.h). */
	KIND_LOOP_TO_LOW = 4,
	KIND_LOOP_TO_HIGH = 5,
};

enum connection_state {
	STATE_NEW = 1,	       /* one side has spoken */
	STATE_ESTABLISHED = 2, /* both have */
	STATE_CLOSING = 3,     /* one side has said its last word */
	STATE_CLOSED = 4,      /* both have, or one has broken it off */
};

/* For how many seconds a connection is remembered after its latest packet: one of a stream (TCP and
 * SCTP), and another. */
#define LASTS_NEW_STREAM 120
#define LASTS_NEW 30
#define LASTS_ESTABLISHED_STREAM 21600
#define LASTS_ESTABLISHED 180
#define LASTS_CLOSING 300
#define LASTS_CLOSED 60

#define CONNECTION_OPENED_BY_HIGH 1
#define CONNECTION_LOW_IS_DONE 2
#define CONNECTION_HIGH_IS_DONE 4
/* Its opener spoke to a service at `nat_address` and `nat_port`, from where it expects answers. */
#define CONNECTION_TRANSLATED 8
/* No connection: what its opener sends to a service goes to `nat_address` and `nat_port`. */
#define CONNECTION_LEADS_ON 16
/* It was refused when it was decided anew. */
#define CONNECTION_DENIED 32
/* One end is in no network. It sees `nat_address` and `nat_port` in the place of the pod. */
#define CONNECTION_OUTSIDE 64
/* Its ends are in two networks of one tenant (across.h). */
#define CONNECTION_ACROSS 128

/* Where one end of a connection is: an interface of this node, or another node. */
struct place {
	__u32 ifindex; /* zero: on another node */
	__u8 mac[6];
	__u16 slot;
};

/* What the first fragment of a datagram said. */
struct first_fragment {
	__be16 source_port;
	__be16 destination_port;
	__u16 extent; /* how many bytes of the datagram it had */
	__u8 protocol;
	__u8 reserved;
	__be32 number; /* under which its parts go on, or zero: their own */
	__u8 unused[4];
};

/* What was decided about a connection, and at which generation of its network. What every packet
 * needs comes first. */
struct connection {
	__u32 generation; /* zero: it must be decided anew */
	__u16 table;	  /* of its network */
	__u8 state;	  /* enum connection_state */
	__u8 flags;
	struct place low;
	struct place high;
	__u64 last_seen;     /* nanoseconds of the monotonic clock, to the second */
	struct address node; /* of the end that is on another one; or who wears a mask */
	__u64 opened;	     /* nanoseconds of the monotonic clock */
	union {
		__u32 egress_rule; /* what let it leave its opener; zero: nobody was asked */
		__u32 network;	   /* of KIND_OUTSIDE or ACROSS: where `nat_address` is */
	};
	union {
		__u32 ingress_rule; /* what let it reach the other end, likewise */
		__u32 chosen;	    /* of ACROSS: as `backend` of a service */
		__u32 mask; /* of KIND_OUTSIDE: the port of the client's mask (mask.h), or zero */
	};
	union {
		struct address nat_address;
		struct first_fragment first;
	};
	__be16 nat_port;
	union {
		__u16 backend;	  /* of a service: its place among those of the service */
		__be16 near_port; /* of ACROSS: the port of the service's address; or as `node` */
	};
	__u32 turn; /* its place in the ring of its network */
};

#define TURNS_PER_PAGE 16

/* The ring of a network: whose turn it is to make room, in the order in which they came. A page has
 * so many places side by side. */
struct turns_key {
	__u32 table;
	__u32 page;
};

/* A place that nobody has taken yet is empty, all zero. */
struct turns {
	struct connection_key at[TURNS_PER_PAGE];
};

/* What one pod has sent and received, on one CPU. */
struct traffic {
	__u64 sent_packets;
	__u64 sent_bytes;
	__u64 received_packets;
	__u64 received_bytes;
	__u64 dropped_packets; /* of those that it sent */
	__u64 dropped_bytes;
};

enum event_kind {
	EVENT_DROP = 1,
	EVENT_OPENED = 2,
	EVENT_CLOSED = 3,
};

struct event {
	__u64 at; /* nanoseconds of the monotonic clock */
	__u32 network;
	__u32 ifindex; /* where the packet came in */
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u16 reason; /* of a drop */
	__u8 kind;    /* enum event_kind */
	__u8 protocol;
	__u32 egress_rule; /* as of a connection */
	__u32 ingress_rule;
};

enum drop_reason {
	DROP_UNKNOWN = 0,
	DROP_UNKNOWN_INTERFACE = 1,
	DROP_MALFORMED = 2,
	DROP_SPOOFED_MAC = 3,
	DROP_SPOOFED_ADDRESS = 4,
	DROP_SPOOFED_ARP = 5,
	DROP_UNWANTED_ARP = 6,
	DROP_NOT_IP = 7,
	DROP_IPV6_NOT_SERVED = 8,
	DROP_MULTICAST = 9,
	DROP_SOURCE_ROUTED = 10,
	DROP_NO_ENDPOINT = 11,
	DROP_TOO_BIG = 12,
	DROP_OVERLAY_STRANGER = 13,
	DROP_OVERLAY_SPOOF = 14,
	DROP_VLAN_TAGGED = 15,
	DROP_KERNEL_REFUSED = 16,
	DROP_SPOOFED_ND = 17,
	DROP_UNWANTED_ND = 18,
	DROP_PROTOCOL = 19,
	DROP_NO_CONNECTION = 20,
	DROP_UNRELATED_ICMP = 21,
	DROP_ICMP_REDIRECT = 22,
	DROP_TINY_FRAGMENT = 23,
	DROP_OVERLAPPING_FRAGMENT = 24,
	DROP_CONNECTIONS_EXHAUSTED = 25,
	DROP_POLICY_UNKNOWN = 26,
	DROP_POLICY_DENIED_EGRESS = 27,
	DROP_POLICY_DENIED_INGRESS = 28,
	DROP_NO_BACKEND = 29,
	DROP_OUTSIDE_CLOSED = 30,
	DROP_NAT_PORTS_SPENT = 31,
	DROP_NOT_SERVED = 32,
	DROP_SOURCE_REFUSED = 33,
	DROP_TOO_MANY_QUESTIONS = 34,
	DROP_TUNNEL_PORT = 35,
	DROP_PORT_TAKEN = 36,
};

/* What every pod sees as its gateway, in every network. */
#define GATEWAY_MAC { 0x02, 0xa7, 0x00, 0x00, 0x00, 0x01 }
#define GATEWAY_IPV4 { 169, 254, 1, 1 }
#define GATEWAY_IPV6 { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 }

/* The node's link: its Ethernet address, the first of its addresses of each family (one behind each
 * resolver's door, then the one behind services' doors, then the one that probes come from), the port
 * behind the resolvers' doors, and the two ranges in which every interface has an alias. */
#define NODE_MAC { 0x02, 0xa7, 0x00, 0x00, 0x00, 0x02 }
#define DOOR_IPV4 0xa9fe0102
#define DOOR_IPV6 { 0xfd61746f, 0x6c6c0000, 0, 2 }
#define SERVICE_DOOR 2
#define PROBER 3
#define PROBER_PORTS 62000 /* the first; probes come from these */
#define DOOR_PORT 61053
#define DNS_PORT 53
#define ALIAS_IPV4 0xf0000000
#define ALIAS_IPV4_MASK 0x0fffffff
#define ALIAS_IPV6 { 0xfd61746f, 0x6c6c0001, 0, 0 }

#include "policy_abi.h"
