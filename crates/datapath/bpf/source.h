/* SPDX-License-Identifier: GPL-2.0 */
/* The addresses that a pod may speak from. */
#pragma once

#include "address.h"

static __always_inline bool has_source(const struct interface *own, const struct address *source)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < MAX_SOURCES; i++) {
		if (i >= own->source_count)
			return false;
		if (same_address(source, &own->sources[i]))
			return true;
	}
	return false;
}
