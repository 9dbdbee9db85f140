/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the programs at the futex tracepoints share with tiptoe. `src/futexes/layout.rs` has the same in
 * Rust.
 */
#pragma once

#include "histogram.h"

/* How a wait ended. */
enum end { WOKEN, AT_ONCE, TIMED_OUT, INTERRUPTED, OTHER, ENDS };

/* So many call sites that ended waits are told apart in a row. */
enum { WAKERS = 10 };

/* Beside how far above the stack pointer a frame begins: its return address is above the frame pointer. */
#define BY_FRAME_POINTER (1u << 31)

/* Which waits are one row: `thread` is 0 where threads are not told apart. */
struct tiptoe_futex_key {
	u64 address;
	/* The user's call site. */
	u64 site;
	/* Where in libc it called; from OPERATION_SHIFT on the operation. */
	u64 via;
	u64 thread;
};

#define OPERATION_SHIFT 56
#define ADDRESS ((1ull << OPERATION_SHIFT) - 1)

struct tiptoe_waker {
	u64 site;
	u64 count;
	u64 total_ns;
};

/* What is known of a row's waits. */
struct tiptoe_futex_row {
	u64 ends[ENDS];
	u64 episodes;
	u64 slept_ns;
	u64 longest_ns;
	u64 zero_count;
	char comm[16];
	struct tiptoe_waker wakers[WAKERS];
	u32 buckets[BUCKETS];
};

/* Why something was not counted. */
enum drop {
	NO_ROOM_FOR_THREAD,
	NO_ROOM_FOR_ROW,
	NO_END,
	NEGATIVE,
	NESTED,
	ENDED_INSIDE,
	OTHER_CALLS,
	DROPS,
};

/* What a thread is in: a wait, where `since` is not 0, and an episode. */
struct tiptoe_thread {
	u64 since;
	u64 address;
	u64 site;
	u64 via;
	u64 first;
	u64 episode_address;
	u64 episode_site;
	u64 episode_frame;
};
