/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Data shared by tiptoe and its programs at context switches; in Rust: `src/cgroups/cgroups_layout.rs`. */
#pragma once

#include "kernel.h"

/* A slot is the index of a cgroup's counts. The first two are for idle tasks, and for cgroups without a free slot. */
enum { IDLE, OTHERS, FIRST };

/* What a cgroup's own tasks did on one CPU. */
struct tiptoe_line {
	u64 runtime_ns;
	u64 switches;
	/* Switches to another cgroup. */
	u64 left;
	u64 minor_faults;
	u64 major_faults;
	u64 migrations;
	u64 unused[2];
};
_Static_assert(sizeof(struct tiptoe_line) == 64, "as in Rust");

struct tiptoe_counted {
	u64 count;
	u64 enabled_ns;
	u64 running_ns;
};
_Static_assert(sizeof(struct tiptoe_counted) == 24, "as in Rust");

/* A task's own counts. */
struct tiptoe_fields {
	u64 runtime_ns;
	u64 minor_faults;
	u64 major_faults;
};

/* A task's state at its last switch, in a cache line. */
struct tiptoe_task {
	u64 task;
	/* The task's fields at that time. */
	struct tiptoe_fields fields;
	/* The task's css_set, cgroup and slot, valid while `moves` is the global `moves` plus 1. */
	u64 set;
	u64 id;
	u32 slot;
	u32 moves;
	u64 unused;
};

/* The task that a CPU runs, and what went wrong. */
struct tiptoe_cpu {
	/* The task, and its fields when it was scheduled in; 0 until the first switch. */
	u64 task;
	struct tiptoe_fields fields;
	/* The task's css_set then, and the cgroup to charge until the cgroup changes, with its slot. */
	u64 set;
	u64 id;
	u32 slot;
	/* Set while a program that can be interrupted changes this state. */
	u32 busy;
	/* Switches from a task after a hidden switch to it (no program ran); how many of these had no kept fields. */
	u64 unseen;
	u64 strangers;
	/* Switches from a task that was moved while it ran. */
	u64 moved;
	/* Switches to cgroups without a slot. */
	u64 no_slot;
	/* Events that could not be read. */
	u64 unread;
	/* Timed runs, their time, and all runs: [0] at switches within a cgroup, [1] to another. */
	u64 timed[2];
	u64 timed_ns[2];
	u64 runs[2];
};
_Static_assert(sizeof(struct tiptoe_cpu) == 144, "as in Rust");

/* For counts by tasks: the tasks' ends, what went wrong, and the programs' time. */
struct tiptoe_round {
	/* Tasks that began to end; tasks that ended; tasks that a run over all tasks found in between. */
	u64 ending;
	u64 ended;
	u64 seen_ending;
	/* Tasks whose memory was reused before their end was reported. */
	u64 lost;
	/* Tasks without memory for a record. */
	u64 no_room;
	/* Births, ends and moves handled, and their time. */
	u64 runs;
	u64 runs_ns;
};
_Static_assert(sizeof(struct tiptoe_round) == 56, "as in Rust");

/* Reports to tiptoe. */
enum { MADE = 1, MOVED = 2, GONE = 3 };

struct tiptoe_news {
	u64 kind;
	u64 id;
	char path[4096];
};
