/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel programs and the agent share, as C. The Rust side is crates/abi; the test
 * tests/abi_layout.rs compares sizes, offsets and numbers of both. */
#pragma once

#include <linux/types.h>

#define MAX_SOURCES 8
#define INTERFACE_NAME_BYTES 16
#define NO_NETWORK 0

/* An IP address in network byte order; IPv4 is written as IPv4-mapped IPv6. */
struct address {
	__be32 words[4];
};

struct interface_key {
	__u32 ifindex;
};

struct interface {
	__u32 network;
	__u8 mac[6];
	__u8 source_count;
	__u8 serves_ipv6;
	char name[INTERFACE_NAME_BYTES];
	struct address sources[MAX_SOURCES];
};

struct endpoint_key {
	__u32 network;
	struct address address;
};

struct endpoint {
	__u32 ifindex;
	struct address node;
	__u8 mac[6];
	__u8 reserved[2];
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

struct drop_key {
	__u32 network;
	__u32 reason;
};

struct drop_counter {
	__u64 packets;
	__u64 bytes;
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
};

/* What every pod sees as its gateway, in every network. */
#define GATEWAY_MAC { 0x02, 0xa7, 0x00, 0x00, 0x00, 0x01 }
#define GATEWAY_IPV4 { 169, 254, 1, 1 }
#define GATEWAY_IPV6 { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 }

/* The node's link: its Ethernet address, the first of its two addresses of each family, the port
 * behind the doors, and the two ranges in which every interface has an alias. */
#define NODE_MAC { 0x02, 0xa7, 0x00, 0x00, 0x00, 0x02 }
#define DOOR_IPV4 0xa9fe0102
#define DOOR_IPV6 { 0xfd61746f, 0x6c6c0000, 0, 2 }
#define DOOR_PORT 61053
#define DNS_PORT 53
#define ALIAS_IPV4 0xf0000000
#define ALIAS_IPV4_MASK 0x0fffffff
#define ALIAS_IPV6 { 0xfd61746f, 0x6c6c0001, 0, 0 }
