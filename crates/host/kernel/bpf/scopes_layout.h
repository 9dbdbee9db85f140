/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What tiptoe reads of scopes; `scopes.rs` has the same. */
#pragma once

#include "kernel.h"

/* Nodes of scopes, and events that are charged to them. */
#define NODES 1024
#define EVENTS 8

struct tiptoe_scope_sums {
	u64 away_ns;
	u64 events[EVENTS];
};
