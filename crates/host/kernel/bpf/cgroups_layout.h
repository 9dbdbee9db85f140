/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Data that the programs at context switches share with tiptoe; in Rust: `src/cgroups/cgroups_layout.rs`. */
#pragma once

#include "kernel.h"

/* Slots of no cgroup: the idle tasks, and cgroups that found no slot. */
enum { IDLE, OTHERS, FIRST };

/* A cgroup's own tasks on one CPU: 64 bytes. */
struct tiptoe_line {
	u64 runtime_ns;
	u64 switches;
	/* Those of the switches that led to another cgroup. */
	u64 left;
	u64 minor_faults;
	u64 major_faults;
	u64 migrations;
	u64 unused[2];
};

/* The counts of one event. */
struct tiptoe_counted {
	u64 count;
	u64 enabled_ns;
	u64 running_ns;
};

/* A task's own fields at some time. */
struct tiptoe_fields {
	u64 runtime_ns;
	u64 minor_faults;
	u64 major_faults;
};

/* The last state of a task: 64 bytes. */
struct tiptoe_task {
	u64 task;
	/* The fields when it was scheduled out. */
	struct tiptoe_fields fields;
	/* The task's css_set, cgroup and slot, valid while `moves` is current. */
	u64 set;
	u64 id;
	u32 slot;
	u32 moves;
	u64 unused;
};

/* What a CPU runs, since when, and what went wrong there. */
struct tiptoe_cpu {
	/* The task, and its fields when it was scheduled in; 0 until the first switch. */
	u64 task;
	struct tiptoe_fields fields;
	/* The task's css_set then, and the cgroup charged until the next change, with its slot. */
	u64 set;
	u64 id;
	u32 slot;
	/* Set while a program that can be interrupted changes this. */
	u32 busy;
	/* Switches from a task not seen to be scheduled in; among these, from one without kept fields. */
	u64 unseen;
	u64 strangers;
	/* Switches from a task whose cgroup had changed without a report of the move. */
	u64 moved;
	/* Charges to no cgroup, because no slot was left. */
	u64 no_slot;
	/* Events that could not be read. */
	u64 unread;
	/* The number of timed runs of the programs, and their time: within a cgroup and between two. */
	u64 timed[2];
	u64 timed_ns[2];
	u64 runs[2];
};

/* Counts by tasks: what is known of their ends, what went wrong, and the programs' time. */
struct tiptoe_round {
	/* Tasks that began to end, that ended, and that were seen in between, over all rounds. */
	u64 ending;
	u64 ended;
	u64 seen_ending;
	/* Tasks whose memory was reused before the kernel reported their end. */
	u64 lost;
	/* Tasks for which no memory was left. */
	u64 no_room;
	/* Births, ends and moves that were handled, and the time that took. */
	u64 runs;
	u64 runs_ns;
};

/* The events that tiptoe is notified of. */
enum { MADE = 1, MOVED = 2, GONE = 3 };

struct tiptoe_news {
	u64 kind;
	u64 id;
	char path[4096];
};
