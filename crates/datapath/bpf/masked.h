/* SPDX-License-Identifier: GPL-2.0 */
/* A sender outside that wears a mask (mask.h). */
#pragma once

#include "icmp.h"
#include "work.h"

/* The packet's sender is somebody behind a mask from now on, and the gateway stands in its place. */
static __always_inline void hide_sender(struct work *work)
{
	struct flow *flow = &work->flow;

	work->is_masked = 1;
	work->client = flow->source;
	work->client_port = flow->transport.source_port;
	flow->source = gateway_like(&flow->source);
}

/* The sender has a mask already. */
static __always_inline void wear_mask(struct work *work, __be16 port)
{
	hide_sender(work);
	work->flow.transport.source_port = port;
}
