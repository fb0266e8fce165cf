/* SPDX-License-Identifier: GPL-2.0 */
/* What the loader tells the programs. */
#pragma once

#include <linux/types.h>

volatile const __u32 OVERLAY_IFINDEX = 0;
volatile const __u32 UNDERLAY_IPV4 = 0; /* host byte order; 0 where nodes meet over IPv6 */
volatile const __be32 UNDERLAY_IPV6[4] = {};
volatile const __u32 POD_MTU = 0;
volatile const __u32 NODE_IFINDEX = 0;
volatile const __u32 UPLINK_IFINDEX = 0;
volatile const __u32 OVERLAY_PORT = 0;
volatile const __u64 QUESTION_NANOS = 0; /* one question of a pod to a resolver in so long */
