/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the programs at switches between tasks share with tiptoe. `src/cgroups/layout.rs` has the same in Rust.
 */
#pragma once

#include "kernel.h"

/* Slots that are no cgroup's own: the idle tasks, and whatever found no slot. */
enum { IDLE, OTHERS, FIRST };

/* A cgroup's own tasks on one CPU: 64 bytes. */
struct tiptoe_line {
	u64 runtime_ns;
	u64 switches;
	/* Of these, to another cgroup. */
	u64 left;
	u64 minor_faults;
	u64 major_faults;
	u64 migrations;
	u64 unused[2];
};

/* What one event counted there. */
struct tiptoe_counted {
	u64 count;
	u64 enabled_ns;
	u64 running_ns;
};

/* What a task's own fields say, at some time. */
struct tiptoe_fields {
	u64 runtime_ns;
	u64 minor_faults;
	u64 major_faults;
};

/* What is kept of a task: 64 bytes. */
struct tiptoe_task {
	u64 task;
	/* When it left. */
	struct tiptoe_fields fields;
	/* Its cgroups, and which one that is, as long as nobody was moved since. */
	u64 set;
	u64 id;
	u32 slot;
	u32 moves;
	u64 unused;
};

/* What a CPU runs, since when, and what went wrong there. */
struct tiptoe_cpu {
	/* The task, and what it had when it came: 0 until we know of one. */
	u64 task;
	struct tiptoe_fields fields;
	/* Its cgroups at that time, and the one that all until it leaves is charged to, with its slot. */
	u64 set;
	u64 id;
	u32 slot;
	/* Within a program that an interrupt may find at work. */
	u32 busy;
	/* Switches from a task that had not come, and of these, from one that was not known at all. */
	u64 unseen;
	u64 strangers;
	/* Switches from a task that was in another cgroup by now: it was moved, and nobody had told us. */
	u64 moved;
	/* Charges to no cgroup, as there were no more slots. */
	u64 no_slot;
	/* Events that could not be read. */
	u64 unread;
	/* What we take, of some runs: how many, and how long, within a cgroup and from one to another. */
	u64 timed[2];
	u64 timed_ns[2];
	u64 runs[2];
};

/* Of tasks that are asked: what is known of their ends, what went wrong, and what that took. */
struct tiptoe_round {
	/* How many began to end, how many did, and how many were seen in between, in all rounds together. */
	u64 ending;
	u64 ended;
	u64 seen_ending;
	/* Of how many that began to end the memory was given anew, and the kernel had not told that they did. */
	u64 lost;
	/* Tasks that there was no memory to know. */
	u64 no_room;
	/* Births, ends and moves that were looked at, and how long that took. */
	u64 runs;
	u64 runs_ns;
};

/* What tiptoe is told of. */
enum { MADE = 1, MOVED = 2, GONE = 3 };

struct tiptoe_news {
	u64 kind;
	u64 id;
	char path[4096];
};
