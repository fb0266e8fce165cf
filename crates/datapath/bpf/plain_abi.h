/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs of plain pods, and of the node's own processes, remember; the Rust side is crates/abi.
 * Their services are in maps of the same form as tenants' (service_abi.h), which are theirs alone. */
#pragma once

#include "abi.h"

/* The number that all their services have. No packet bears it, and no tenant's map. */
#define PLAIN_NETWORK 1

/* How many reasons their drops are counted by; more than there are. */
#define PLAIN_DROP_REASONS 128

/* A packet as it comes: by its ends, or, where it is a part of a datagram, by the number of that in the
 * place of ports. */
struct plain_key {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 kind; /* enum plain_kind */
	__u8 reserved[2];
};

enum plain_kind {
	PLAIN_SENT = 0,	    /* by a plain pod */
	PLAIN_RECEIVED = 1, /* by one */
	PLAIN_PART_SENT = 2,
	PLAIN_PART_RECEIVED = 3,
	PLAIN_CAME = 4, /* by the uplink */
	PLAIN_GOES = 5, /* by it */
	PLAIN_PART_CAME = 6,
	PLAIN_PART_GOES = 7,
};

/* Goes on as it came; remembered, so that nobody else's packets are taken for it. */
#define PLAIN_STRAIGHT 1
/* Whoever goes this way has said its last word. */
#define PLAIN_ENDED 2
/* Goes back to the pod that sent it. */
#define PLAIN_TO_ITSELF 4
/* Answers one that did; at the uplink, answers one that was led. */
#define PLAIN_ANSWER 8
/* At the uplink: whoever is answered this way has said its last word, too. */
#define PLAIN_OTHER_ENDED 16
#define PLAIN_OVER (PLAIN_ENDED | PLAIN_OTHER_ENDED)

/* The ends with which a packet goes on. Both addresses lie side by side, as in a header. */
struct plain_way {
	__u64 seen; /* nanoseconds of the monotonic clock, to the second */
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u16 place; /* of the backend among those of its service */
	__u8 flags;
	__u8 reserved;
};

/* A socket of the node, and one whom it speaks with. */
struct node_front_key {
	__u64 socket;
	struct address address;
	__be16 port;
	__u8 reserved[6];
};

/* The service by which it does: whom the process takes the other one for. */
struct node_front {
	struct address address;
	__be16 port;
	__u8 reserved[2];
};
