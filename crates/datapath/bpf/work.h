/* SPDX-License-Identifier: GPL-2.0 */
/* Room for the slow path, on each CPU: the stack of all functions together is 512 bytes, and
 * functions that find everything here are checked by the kernel once, whoever calls them. No packet
 * is in the middle of it when the next one of the same CPU begins. */
#pragma once

#include "policy.h"
#include "ring.h"
#include "service.h"

/* One end of a packet's way. */
struct end {
	__u64 since; /* as of an endpoint */
	struct place place;
	struct address node;
};

/* What becomes of a packet that is not dropped. */
enum outcome {
	OUTCOME_PASS,  /* it leaves no trace */
	OUTCOME_OPEN,  /* it opens a connection */
	OUTCOME_RENEW, /* its connection is decided anew */
	OUTCOME_GO_ON, /* its connection is as it was */
};

/* Which end of a packet's way is in no network. */
enum outside {
	OUTSIDE_NOBODY,
	OUTSIDE_SENDER,
	OUTSIDE_RECEIVER,
};

/* Where the backend of a client is that is led into another network (across.h). */
enum across {
	ACROSS_NOT,
	ACROSS_HERE,
	ACROSS_THERE, /* on another node, which chooses for itself */
};

/* An address and a port. */
struct face {
	struct address address;
	__be16 port;
	__u16 reserved;
};

struct work {
	__u64 now;
	__u32 generation; /* of the network, read before anything was asked */
	__u32 extent;	  /* of the first fragment of the datagram */
	__be32 number;	  /* under which its parts go on, or zero: their own */
	struct flow flow;      /* the packet; one to a service becomes one to its backend */
	struct peer_key node;  /* that sent it, if it came through the tunnel */
	struct end source;
	struct end destination;
	struct flow wire;      /* the packet as it came */
	struct flow out;       /* as it goes out, if it is translated */
	struct flow reverse;   /* as its opener would have sent it */
	struct translation to; /* what became of a packet to a service */
	__u32 is_translated;
	__u32 is_to_itself; /* the answer of a pod that is its own backend */
	__u32 is_unknown; /* nobody knew a connection of the packet as it came */
	__u32 led_at; /* the generation of what led a client's packet on */
	__u32 outside;	  /* enum outside */
	__u32 may_enter;  /* a sender outside may open a connection */
	__u32 loops;	  /* who is outside is a pod's face on this node, or an address of it (loop.h) */
	__u16 entered_at; /* the place of the backend that it was led to */
	__u16 is_held;	  /* it came to an address that is there for a network */
	__u32 is_masked;  /* who is outside is known inside by a mask: `client`, `client_port` */
	__u32 across;	  /* enum across */
	__u32 client_network; /* of a connection across two: where its client is */
	struct address client;
	__be16 client_port;
	__be16 service_port; /* that the client spoke to */
	__u32 is_quoting; /* it is an error that came by the tunnel, and what it quotes was read */
	__u16 asks_service; /* whether a service still wants the connection */
	__u16 outcome;	    /* enum outcome */
	struct connection_key key;
	struct question question;
	struct connection fresh;
	struct face face;   /* what the outside sees in the place of the pod */
	struct flow sender; /* what leaves for the outside, as its sender sees it */
	struct flow quote;  /* what an error quotes, as it goes on; as it came it is in `reverse` */
	__u16 first_port;   /* of those that the sender's network has outside */
	__u16 ports;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

static __always_inline struct work *work_at_hand(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&works, &first);
}

/* On the packet in work->wire. */
static __always_inline void begin_work(struct work *work, __u64 now)
{
	work->now = now;
	copy_flow(&work->flow, &work->wire);
	work->to = (struct translation){};
	work->is_translated = 0;
	work->is_to_itself = 0;
	work->is_unknown = 0;
	work->outside = OUTSIDE_NOBODY;
	work->may_enter = 0;
	work->loops = 0;
	work->is_masked = 0;
	work->number = 0;
	work->across = ACROSS_NOT;
}

/* Whether the connection of the packet, as it goes on, was looked up already and is not there: when
 * the packet came, or when a backend was chosen for it. */
static __always_inline bool is_new(const struct work *work)
{
	return work->is_translated ? work->to.is_free : work->is_unknown;
}

/* Before anything is asked that it stands for. Says whether the network has a place here. */
static __always_inline bool read_generation(struct work *work)
{
	struct network *network = network_at(work->flow.table);

	if (!network || network->network != work->flow.network)
		return false;
	work->generation = *(volatile __u32 *)&network->generation;
	barrier();
	return true;
}

/* Whether what was decided about a connection holds for the packet at hand. */
static __always_inline bool is_settled(const struct connection *known, const struct work *work)
{
	return known->generation == work->generation && known->table == work->flow.table &&
	       !(known->flags & CONNECTION_DENIED);
}

/* The answer of a service comes from where its client had asked. */
static __always_inline void answer_for_service(struct work *work, const struct connection *known)
{
	copy_flow(&work->out, &work->wire);
	work->out.source = known->nat_address;
	work->out.transport.source_port = known->nat_port;
	if (work->is_to_itself)
		work->out.destination = work->wire.source;
	work->is_translated = 1;
}

/* The packet that the client would have sent to the service of which this is an answer. */
static __always_inline void reverse_answer(struct work *work, const struct connection *known)
{
	const struct flow *flow = &work->flow;

	copy_flow(&work->reverse, flow);
	work->reverse.source = work->is_to_itself ? flow->source : flow->destination;
	work->reverse.destination = known->nat_address;
	work->reverse.transport.source_port = flow->transport.destination_port;
	work->reverse.transport.destination_port = known->nat_port;
}

/* What leads to a connection is as far as the connection: a lead that outlived it would stand in
 * the way of others. */
static __noinline void keep_lead(struct work *work, struct connection *known)
{
	const struct flow *asked = &work->wire;
	struct connection *lead;

	if (!(known->flags & CONNECTION_TRANSLATED))
		return;
	if (!is_by_sender(known, is_higher(&work->flow))) {
		reverse_answer(work, known);
		asked = &work->reverse;
	}
	name_connection(&work->key, asked, is_higher(asked));
	lead = connection_at(&work->key);
	if (lead && lead->flags & CONNECTION_LEADS_ON)
		lead->state = known->state;
}

/* What led the opener to a connection that gives way leads nobody any more. */
static __always_inline void forget_lead(struct work *work, const struct connection *known)
{
	struct flow *asked = &work->reverse;

	if (!(known->flags & CONNECTION_TRANSLATED))
		return;
	copy_flow(asked, &work->flow);
	asked->destination = known->nat_address;
	asked->transport.destination_port = known->nat_port;
	name_connection(&work->key, asked, is_higher(asked));
	bpf_map_delete_elem(&connections, &work->key);
	name_connection(&work->key, &work->flow, is_higher(&work->flow));
}

/* A packet of a connection passes, through a service or not. */
static __always_inline void note_with_lead(struct __sk_buff *skb, struct work *work,
					   struct connection *known)
{
	bool is_change = !is_routine(known, &work->flow.transport);

	note(skb, &work->flow, known, is_higher(&work->flow), work->now);
	if (is_change)
		keep_lead(work, known);
}

/* Puts work->fresh in at work->key, in the place of what is there, if it is not known that nobody
 * is. */
static __noinline verdict put_in(struct work *work, bool is_free)
{
	__u32 table = work->flow.table;
	struct connection *former = is_free ? NULL : connection_at(&work->key);

	if (former && former->table == table)
		work->fresh.turn = former->turn;
	else if (!take_turn(table, &work->key, &work->fresh.turn, work->now))
		return DROP_CONNECTIONS_EXHAUSTED;
	if (bpf_map_update_elem(&connections, &work->key, &work->fresh, BPF_ANY))
		return DROP_CONNECTIONS_EXHAUSTED;
	return FINE;
}
