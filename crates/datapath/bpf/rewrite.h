/* SPDX-License-Identifier: GPL-2.0 */
/* A packet of a service with other ends than it came with, in either family. */
#pragma once

#include "translate.h"
#include "work.h"

static __always_inline struct ports ports_of(const struct flow *flow)
{
	return (struct ports){ .source = flow->transport.source_port,
			       .destination = flow->transport.destination_port };
}

static __noinline long rewrite_ipv4(struct __sk_buff *skb, struct flow *from, struct flow *to)
{
	struct ipv4_ends was = { ipv4_of(&from->source), ipv4_of(&from->destination) };
	struct ipv4_ends is = { ipv4_of(&to->source), ipv4_of(&to->destination) };

	return translate_ipv4(skb, &was, &is, &from->transport);
}

/* Both ends lie in a flow as in a header: source and destination side by side. */
static __noinline long rewrite_ipv6(struct __sk_buff *skb, struct flow *from, struct flow *to)
{
	return translate_ipv6(skb, (struct ipv6_ends *)&from->source,
			      (struct ipv6_ends *)&to->source, &from->transport);
}

/* Gives the packet at hand the ends of work->out. Nothing, or an error. */
__noinline int rewrite(struct __sk_buff *skb)
{
	struct work *work = work_at_hand();
	struct ports ports;

	if (!work || !has_ports(&work->wire.transport))
		return -1;
	ports = ports_of(&work->out);
	if (is_mapped(&work->wire.source) ? rewrite_ipv4(skb, &work->wire, &work->out) :
					    rewrite_ipv6(skb, &work->wire, &work->out))
		return -1;
	return translate_ports(skb, &work->wire.transport, &ports) ? -1 : 0;
}
