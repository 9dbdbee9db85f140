/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Counts by fields of tasks.
 *
 * The kernel counts run time, faults, switches and migrations in fields of each task, so no BPF program needs to run
 * at switches. The fields' growth is added to a line of sums (*charged*).
 *
 * Two CPUs may charge a task at once, so each CPU exchanges the recorded value for the present value, and charges
 * the difference.
 */
#pragma once

#include "cgroups_layout.h"

/* A task's field values at its last charge. */
struct tiptoe_charged {
	u64 runtime_ns;
	u64 switches;
	u64 minor_faults;
	u64 major_faults;
	u64 migrations;
};

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_round);
} rounds SEC(".maps");

/*
 * When the count started (CLOCK_MONOTONIC): after the programs were attached, before the first round over all tasks.
 */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} begun SEC(".maps");

/* A task's last charge and, for cgroups, where to charge it next. */
struct tiptoe_known {
	struct tiptoe_charged charged;
	u64 id;
	u32 slot;
	u32 is_ending;
};

/* Counted tasks by their address, until their memory is freed. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 1);
	UINT(map_flags, NO_PREALLOC);
	TYPE(key, u64);
	TYPE(value, struct tiptoe_known);
} known SEC(".maps");

/* The state of a reaped task. */
#define EXIT_DEAD 16

/* Returns whether a task started before the count. */
INLINE int is_older(struct task_struct *task)
{
	u32 zero = 0;
	u64 *begun_ns = bpf_map_lookup_elem(&begun, &zero);

	return begun_ns && READ(task, start_time) < *begun_ns;
}

INLINE struct tiptoe_round *round_of_all(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&rounds, &zero);
}

INLINE void record(struct task_struct *task, const struct tiptoe_known *new, struct tiptoe_round *round)
{
	u64 address = (u64)task;

	if (bpf_map_update_elem(&known, &address, new, ANY))
		__sync_fetch_and_add(&round->no_room, 1);
}

/* Forgets the former task at a new task's address, whose memory was then freed without a run of `ended`. */
INLINE void forget_former(struct task_struct *born, struct tiptoe_round *round)
{
	u64 address = (u64)born;
	struct tiptoe_known *old = bpf_map_lookup_elem(&known, &address);

	if (!old)
		return;
	if (old->is_ending)
		__sync_fetch_and_add(&round->lost, 1);
	bpf_map_delete_elem(&known, &address);
}

/* Counts a run of a program, and its time. */
INLINE void note_run(struct tiptoe_round *round, u64 began)
{
	__sync_fetch_and_add(&round->runs, 1);
	__sync_fetch_and_add(&round->runs_ns, bpf_ktime_get_ns() - began);
}

INLINE u64 switches_of(struct task_struct *task)
{
	return READ(task, nvcsw) + READ(task, nivcsw);
}

/* Charges the growth of a value since its last charge. */
INLINE void charge_to(u64 *place, u64 *before, u64 now)
{
	u64 charged = __sync_lock_test_and_set(before, now);

	__sync_fetch_and_add(place, now - charged);
}

INLINE void charge_time(struct tiptoe_line *line, struct tiptoe_charged *before, struct task_struct *task)
{
	charge_to(&line->runtime_ns, &before->runtime_ns, READ(task, se.sum_exec_runtime));
}

INLINE void charge_growth(struct tiptoe_line *line, struct tiptoe_charged *before, struct task_struct *task)
{
	charge_time(line, before, task);
	charge_to(&line->switches, &before->switches, switches_of(task));
	charge_to(&line->minor_faults, &before->minor_faults, READ(task, min_flt));
	charge_to(&line->major_faults, &before->major_faults, READ(task, maj_flt));
	charge_to(&line->migrations, &before->migrations, READ(task, se.nr_migrations));
}

/* Takes what a task did up to now for charged. */
INLINE void charged_up_to_now(struct tiptoe_charged *before, struct task_struct *task)
{
	before->runtime_ns = READ(task, se.sum_exec_runtime);
	before->switches = switches_of(task);
	before->minor_faults = READ(task, min_flt);
	before->major_faults = READ(task, maj_flt);
	before->migrations = READ(task, se.nr_migrations);
}
