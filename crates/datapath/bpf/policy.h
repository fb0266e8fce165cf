/* SPDX-License-Identifier: GPL-2.0 */
/* Policy: whether a connection may be. A stage of the slow path (decide.h), asked when a connection
 * is opened and when the generation of its network has changed since.
 *
 * The rule: the opener's node asks for its egress, the other end's node for its ingress; where both
 * are here, both are asked. Unknown means no: a pod of which nothing is known neither sends nor
 * receives, and nobody of whom nothing is known passes where a rule would have to tell who it is.
 *
 * What others call is not static: the kernel checks it once and by itself, and a pointer that is
 * given to it may be NULL in its eyes. */
#pragma once

#include "address.h"
#include "packet.h"
#include "policy_maps.h"
#include "transport.h"

/* A connection as policy sees it: always from the end that opened it, whichever end the packet at
 * hand came from. A connection through a service has its backend for the other end. */
struct question {
	__u32 network; /* of the opener */
	__u32 other_network;
	struct address opener;
	struct address other;
	__be16 port; /* of the other end; zero where the protocol has none */
	__u8 protocol;
	__u8 opener_is_here;
	__u8 other_is_here;
	__u8 other_is_outside; /* of all pods' addresses */
	__u8 opener_is_outside;
	__u8 reserved;
	/* The answer: what is kept with the connection and told in events. */
	__u32 egress_rule;
	__u32 ingress_rule;
};

/* What policy knows of one end. */
struct party {
	__u32 identity;
	__u32 tenant; /* zero: nothing is known */
	__u32 ingress;
	__u32 egress;
};

static __always_inline __u32 bank_in_force(void)
{
	__u32 first = 0;
	__u32 *bank = bpf_map_lookup_elem(&policy_bank, &first);

	return bank ? *bank : NO_BANK;
}

static __always_inline struct party party_at(__u32 network, const struct address *ip, __u32 bank)
{
	struct policy_end_key key = { .network = network, .address = *ip, .bank = bank };
	__u32 *identity = bpf_map_lookup_elem(&policy_ends, &key);
	struct policy_identity *entry =
		identity ? bpf_map_lookup_elem(&policy_identities, identity) : NULL;

	if (!entry)
		return (struct party){};
	return (struct party){ .identity = *identity,
			       .tenant = entry->tenant,
			       .ingress = entry->ingress,
			       .egress = entry->egress };
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
	__u16 port = bpf_ntohs(q->port);
	struct policy_port_key key = {
		.prefix = 8 * (sizeof(key.column) + sizeof(key.protocol) + sizeof(key.port)),
		.column = bpf_htonl(column),
		.protocol = is_icmp(q->protocol) ? 0 : q->protocol,
		.port = { port >> 8, port & 0xff },
	};

	return bpf_map_lookup_elem(&policy_ports, &key);
}

/* Two pods may have one address, each in its own network. */
static __always_inline bool is_same_pod(const struct question *q)
{
	return q->network == q->other_network && same_address(&q->opener, &q->other);
}

/* What a set of rules says to the other end, whose address is `ip`. Nothing that stands in a
 * NetworkPolicy keeps a pod from itself. */
static __always_inline verdict apply_set(const struct question *q, __u32 set, __u32 identity,
					 __u32 *rule, verdict denied)
{
	__u32 *column = column_of(set, identity);
	struct policy_verdict *said = column ? read_column(*column, q) : NULL;

	if (!said)
		return DROP_POLICY_UNKNOWN;
	*rule = said->rule;
	if (said->accept || (said->tier == TIER_NETWORK_POLICY && is_same_pod(q)))
		return FINE;
	return denied;
}

/* The number by which a tenant's rules know the other end. Where a network is open to several
 * tenants, a pod of another one is an address and no more. Zero is somebody that no rule names, and
 * false that it cannot be told who it is. */
static __always_inline bool name_for(__u32 tenant, const struct party *other, bool outside,
				     const struct address *ip, __u32 *identity)
{
	if (!outside && !other->tenant)
		return false;
	*identity = !outside && other->tenant == tenant ? other->identity :
							   identity_outside(tenant, ip);
	return true;
}

static __always_inline verdict judge_egress(struct question *q, const struct party *opener,
					    const struct party *other)
{
	__u32 identity;

	if (!opener->tenant)
		return DROP_POLICY_UNKNOWN;
	if (!opener->egress)
		return FINE;
	if (!name_for(opener->tenant, other, q->other_is_outside, &q->other, &identity))
		return DROP_POLICY_UNKNOWN;
	return apply_set(q, opener->egress, identity, &q->egress_rule, DROP_POLICY_DENIED_EGRESS);
}

static __always_inline verdict judge_ingress(struct question *q, const struct party *opener,
					     const struct party *other)
{
	__u32 identity;

	if (!other->tenant)
		return DROP_POLICY_UNKNOWN;
	if (!other->ingress)
		return FINE;
	if (!name_for(other->tenant, opener, q->opener_is_outside, &q->opener, &identity))
		return DROP_POLICY_UNKNOWN;
	return apply_set(q, other->ingress, identity, &q->ingress_rule, DROP_POLICY_DENIED_INGRESS);
}

static __always_inline void note_refusal(const struct question *q)
{
	struct refusal *refusal = refusal_at_hand();

	if (refusal)
		*refusal = (struct refusal){ .egress_rule = q->egress_rule,
					     .ingress_rule = q->ingress_rule };
}

/* A verdict: FINE with the rules filled in, or DROP_POLICY_UNKNOWN, DROP_POLICY_DENIED_EGRESS,
 * DROP_POLICY_DENIED_INGRESS. A bounded number of lookups, whatever the policies are. */
__noinline int judge_policy(struct question *q)
{
	struct party opener = {}, other = {};
	__u32 bank = bank_in_force();
	verdict judged = FINE;

	if (!q)
		return DROP_POLICY_UNKNOWN;
	q->egress_rule = 0;
	q->ingress_rule = 0;
	if (bank == NO_BANK)
		return FINE;
	if (!q->opener_is_outside)
		opener = party_at(q->network, &q->opener, bank);
	if (!q->other_is_outside)
		other = party_at(q->other_network, &q->other, bank);
	if (q->opener_is_here)
		judged = judge_egress(q, &opener, &other);
	if (judged == FINE && q->other_is_here)
		judged = judge_ingress(q, &opener, &other);
	if (judged != FINE)
		note_refusal(q);
	return judged;
}

/* Whether a part of a datagram passes whose ports nobody knows, since its first part has not come
 * yet: only where no policy is about either end. */
__noinline int passes_unasked(struct question *q)
{
	__u32 bank = bank_in_force();
	struct party opener, other;

	if (!q)
		return false;
	if (bank == NO_BANK)
		return true;
	opener = party_at(q->network, &q->opener, bank);
	other = party_at(q->other_network, &q->other, bank);
	return (!q->opener_is_here || (opener.tenant && !opener.egress)) &&
	       (!q->other_is_here || (other.tenant && !other.ingress));
}
