/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Data of scopes (labels on threads' work) that tiptoe reads; in Rust: `scopes.rs`. */
#pragma once

#include "kernel.h"

/* The most nodes (scopes within their parents), and events charged to them. */
#define NODES 1024
#define EVENTS 8

struct tiptoe_scope_sums {
	u64 away_ns;
	u64 events[EVENTS];
};
_Static_assert(sizeof(struct tiptoe_scope_sums) == 72, "as in Rust");
