/* SPDX-License-Identifier: GPL-2.0 */
/* Services: whether the destination of a packet is one, and which backend takes it. The first stage
 * of the slow path (decide.h), asked on the client's node alone. As in policy.h, the kernel checks
 * this function by itself. */
#pragma once

#include "flow.h"

/* Where a packet to a service goes. */
struct translation {
	struct address address;
	__be16 port;
	__u8 is_service; /* whether the rest means anything */
	__u8 is_kept;	 /* before the call: address and port are the backend of a connection that goes on */
};

/* `flow` goes from a client to what may be a service of flow->network. Fills in `to`; with
 * `is_kept`, an answer other than the backend given ends the connection. A verdict: FINE also where it is no
 * service; DROP_NO_BACKEND where the service has none, and then the client is refused at once
 * (refuse_service). */
__noinline int choose_backend(struct flow *flow, struct translation *to)
{
	if (!flow || !to)
		return DROP_KERNEL_REFUSED;
	to->is_service = 0;
	return FINE;
}
