/* SPDX-License-Identifier: GPL-2.0 */
/* Where the ends of a packet are: looked up by network and address, there is no other way. */
#pragma once

#include "work.h"

static __always_inline struct endpoint *endpoint_of(__u32 network, const struct address *ip)
{
	struct endpoint_key key = { .network = network, .address = *ip };

	return bpf_map_lookup_elem(&endpoints, &key);
}

static __always_inline void note_end(struct end *end, const struct endpoint *endpoint)
{
	end->since = endpoint->since;
	end->node = endpoint->node;
	end->place.ifindex = endpoint->ifindex;
	end->place.slot = endpoint->slot;
	copy_mac(end->place.mac, endpoint->mac);
}
