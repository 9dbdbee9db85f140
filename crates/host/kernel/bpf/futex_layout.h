/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Data shared by tiptoe and its programs at futex calls; in Rust: `src/futexes/futex_layout.rs`. */
#pragma once

#include "histogram.h"

enum end { WOKEN, AT_ONCE, TIMED_OUT, INTERRUPTED, OTHER, ENDS };

/* The most waking call sites in a row (sums by key). */
enum { WAKERS = 10 };

/* Marks a frame whose return address is above the frame pointer. */
#define BY_FRAME_POINTER (1u << 31)

/* Which waits share a row; `thread` is 0 unless rows are by thread. */
struct tiptoe_futex_key {
	u64 address;
	/* The call site in the code that called libc. */
	u64 site;
	/* The address in libc's outermost function, and the operation from OPERATION_SHIFT on. */
	u64 via;
	u64 thread;
};
_Static_assert(sizeof(struct tiptoe_futex_key) == 32, "as in Rust");

#define OPERATION_SHIFT 56
#define ADDRESS ((1ull << OPERATION_SHIFT) - 1)

struct tiptoe_waker {
	u64 site;
	u64 count;
	u64 total_ns;
};
_Static_assert(sizeof(struct tiptoe_waker) == 24, "as in Rust");

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
_Static_assert(sizeof(struct tiptoe_futex_row) == 1672, "as in Rust");

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

/* A thread's wait, in progress unless `since` is 0, and the thread's last episode (lock call). */
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
_Static_assert(sizeof(struct tiptoe_thread) == 64, "as in Rust");
