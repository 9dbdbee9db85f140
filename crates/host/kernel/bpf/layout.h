/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Data shared by tiptoe and its programs that time waits; in Rust: `src/waits/layout.rs`. */
#pragma once

#include "histogram.h"

/* contention_begin's flags. */
enum { SPIN = 1, READER = 2, WRITER = 4, RT = 8, PERCPU = 16, MUTEX = 32 };

/* tiptoe's flags: the waiting task's own mmap_lock; the wait's outcome. */
enum { MMAP = 1 << 8, FAILED = 1 << 9, DOWNGRADED = 1 << 10 };

/* Which waits share a row of sums. A field that was not requested is 0. */
struct tiptoe_key {
	u64 lock;
	u64 cgroup;
	u32 tgid;
	u32 tid;
	s32 stack;
	u32 traits;
};
_Static_assert(sizeof(struct tiptoe_key) == 32, "as in Rust");

struct tiptoe_row {
	u64 count;
	u64 total_ns;
	u64 max_ns;
	u64 zero_count;
	char comm[16];
	u32 buckets[BUCKETS];
};
_Static_assert(sizeof(struct tiptoe_row) == 1392, "as in Rust");

/* Why something was not counted, or only in part. */
enum drop {
	NO_ROOM_TO_WAIT,
	NO_ROOM_FOR_ROW,
	NO_BEGIN,
	NO_END,
	NEGATIVE,
	NESTED,
	NO_STACK,
	DROPS,
};

/* A wait in progress, and the time that recording its begin took. */
struct tiptoe_wait {
	u64 start_ns;
	u64 cgroup;
	s32 stack;
	u32 traits;
	u64 own_ns;
};
_Static_assert(sizeof(struct tiptoe_wait) == 32, "as in Rust");
