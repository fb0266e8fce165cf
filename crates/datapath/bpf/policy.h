/* SPDX-License-Identifier: GPL-2.0 */
/* What policy says to the first packet of a connection, at one of its ends.
 *
 * The rule: each end is asked on its own node, and unknown means no. A pod of which nothing is
 * known neither sends nor receives; a peer of which nothing is known does not pass where a rule
 * would have to tell who it is. */
#pragma once

#include "address.h"
#include "packet.h"
#include "policy_maps.h"
#include "transport.h"

/* One end, asked about the other. */
struct question {
	__u32 network;
	__u32 rule; /* the answer: which rule decided; 0: none */
	struct address subject; /* whose policies are asked: a pod of this node */
	struct address other;
	__be16 port; /* where the connection goes to */
	__u8 protocol;
	__u8 inward;	   /* to the subject, else from it */
	__u8 other_is_pod; /* else it is outside of all pods' addresses */
	__u8 reserved[3];
};

static __always_inline __u32 bank_in_force(void)
{
	__u32 first = 0;
	__u32 *bank = bpf_map_lookup_elem(&policy_bank, &first);

	return bank ? *bank : NO_BANK;
}

/* The identity of a pod's address, or 0. */
static __always_inline __u32 identity_at(__u32 network, const struct address *ip, __u32 bank)
{
	struct policy_end_key key = { .network = network, .address = *ip, .bank = bank };
	__u32 *identity = bpf_map_lookup_elem(&policy_ends, &key);

	return identity ? *identity : 0;
}

/* What a tenant calls an address that is none of its pods'; 0 where it has no name for it. */
static __always_inline __u32 identity_outside(__u32 tenant, const struct address *ip)
{
	struct policy_outside_key key = {
		.prefix = 8 * (sizeof(key.tenant) + sizeof(key.address)),
		.tenant = bpf_htonl(tenant),
		.address = *ip,
	};
	__u32 *identity = bpf_map_lookup_elem(&policy_outside, &key);

	return identity ? *identity : 0;
}

/* Who the other end is for the subject's tenant. A pod of another tenant, where a network is open
 * to several, is an address and no more. */
static __always_inline bool tell_other(const struct question *q, __u32 bank, __u32 tenant,
				       __u32 *identity)
{
	struct policy_identity *entry;

	if (!q->other_is_pod) {
		*identity = identity_outside(tenant, &q->other);
		return true;
	}
	*identity = identity_at(q->network, &q->other, bank);
	entry = bpf_map_lookup_elem(&policy_identities, identity);
	if (!entry)
		return false;
	if (entry->tenant != tenant)
		*identity = identity_outside(tenant, &q->other);
	return true;
}

static __always_inline __u32 *column_of(__u32 set, __u32 identity)
{
	struct policy_column_key key = { .set = set, .identity = identity };
	__u32 *column = bpf_map_lookup_elem(&policy_columns, &key);

	if (column)
		return column;
	key.identity = 0;
	return bpf_map_lookup_elem(&policy_columns, &key);
}

static __always_inline struct policy_verdict *read_column(__u32 column, const struct question *q)
{
	struct policy_port_key key = {
		.prefix = 8 * (sizeof(key.column) + sizeof(key.protocol) + sizeof(key.port)),
		.column = bpf_htonl(column),
	};

	if (!is_icmp(q->protocol)) {
		__u16 port = bpf_ntohs(q->port);

		key.protocol = q->protocol;
		key.port[0] = port >> 8;
		key.port[1] = port & 0xff;
	}
	return bpf_map_lookup_elem(&policy_ports, &key);
}

static __always_inline verdict denied(const struct question *q)
{
	return q->inward ? DROP_POLICY_DENIED_INGRESS : DROP_POLICY_DENIED_EGRESS;
}

/* Two lookups of a longest prefix at most, and four of a hash: whatever the policies are. */
static __noinline verdict ask_policy(struct question *q)
{
	__u32 bank = bank_in_force(), own, other, set;
	struct policy_identity *subject;
	struct policy_verdict *said;
	__u32 *column;

	q->rule = 0;
	if (bank == NO_BANK)
		return FINE;
	own = identity_at(q->network, &q->subject, bank);
	subject = bpf_map_lookup_elem(&policy_identities, &own);
	if (!subject)
		return DROP_POLICY_UNKNOWN;
	set = q->inward ? subject->ingress : subject->egress;
	if (!set)
		return FINE;
	if (!tell_other(q, bank, subject->tenant, &other))
		return DROP_POLICY_UNKNOWN;
	column = column_of(set, other);
	said = column ? read_column(*column, q) : NULL;
	if (!said)
		return DROP_POLICY_UNKNOWN;
	q->rule = said->rule;
	if (said->accept)
		return FINE;
	if (said->tier == TIER_NETWORK_POLICY && same_address(&q->subject, &q->other))
		return FINE;
	return denied(q);
}
