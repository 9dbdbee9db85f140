/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sums up waits of the wanted processes in rows: stores a wait's begin, then adds its time to a histogram. */
#pragma once

#include "ids.h"
#include "layout.h"

#define WAITS 16384
#define ROWS 8192
#define STACKS 16384
#define FRAMES 16
/* A wait that ends this soon after its begin was recorded counts as ended during the recording. */
#define FREE_NS 500
#define SLOTS 4

/* Settings, written before loading. */
const volatile u32 only_wanted = 0;
const volatile u32 by_thread = 0;
const volatile u32 by_lock = 0;

struct wait_key {
	u64 lock;
	u64 tid;
};

struct slot {
	u64 lock;
	struct tiptoe_wait wait;
};

struct own {
	/* The waits of this CPU while it spins. */
	struct slot slots[SLOTS];
	/* Space for a new row, larger than a program's stack. */
	struct tiptoe_row row;
};

#include "run.h"

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 1024);
	TYPE(key, u32);
	TYPE(value, u32);
} wanted SEC(".maps");

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, ROWS);
	TYPE(key, struct tiptoe_key);
	TYPE(value, struct tiptoe_row);
} rows SEC(".maps");

struct {
	UINT(type, MAP_STACK_TRACE);
	UINT(max_entries, STACKS);
	UINT(key_size, sizeof(u32));
	UINT(value_size, FRAMES * sizeof(u64));
} stacks SEC(".maps");

INLINE int is_wanted(void)
{
	u32 tgid;

	if (!only_wanted)
		return 1;
	tgid = current_ids() >> 32;
	return !!bpf_map_lookup_elem(&wanted, &tgid);
}

INLINE void start(void *ctx, struct tiptoe_wait *wait, u32 traits)
{
	wait->start_ns = bpf_ktime_get_ns();
	wait->cgroup = bpf_get_current_cgroup_id();
	wait->stack = bpf_get_stackid(ctx, &stacks, FAST_STACK_CMP);
	wait->traits = traits;
	if (wait->stack < 0) {
		wait->stack = -1;
		drop(NO_STACK);
	}
	wait->own_ns = bpf_ktime_get_ns() - wait->start_ns;
}

/*
 * Returns a wait's time. Recording the begin walks a stack, which may take longer than a short wait. If the wait
 * ended soon after the recording (`FREE_NS`), the recording is subtracted. Otherwise the lock was not free during
 * the recording.
 */
INLINE s64 waited_ns(const struct tiptoe_wait *wait, u64 now)
{
	s64 rest = now - wait->start_ns - wait->own_ns;

	return rest < FREE_NS ? rest : rest + (s64)wait->own_ns;
}

/* Makes a key's row, named after the process, or after the thread if each thread has rows. */
NO_INLINE struct tiptoe_row *new_row(struct cpu *cpu, struct tiptoe_key *key)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (!cpu || !key)
		return 0;
	if (!by_thread)
		task = READ(task, group_leader);
	bpf_probe_read_kernel(cpu->own.row.comm, sizeof(cpu->own.row.comm),
			      __builtin_preserve_access_index(&task->comm));
	/* If another CPU was faster, the other CPU's row stays. */
	bpf_map_update_elem(&rows, key, &cpu->own.row, NO_EXIST);
	return bpf_map_lookup_elem(&rows, key);
}

/* Counts a wait, or with DOWNGRADED a change of mode without a wait. */
INLINE void count(struct cpu *cpu, const struct tiptoe_wait *wait, u64 lock, u32 outcome, s64 ns)
{
	u64 ids = current_ids();
	struct tiptoe_key key = {
		.lock = by_lock ? lock : 0,
		.cgroup = wait->cgroup,
		.tgid = ids >> 32,
		.tid = by_thread ? (u32)ids : 0,
		.stack = wait->stack,
		.traits = wait->traits | outcome,
	};
	struct tiptoe_row *row;
	u32 bucket;

	if (ns < 0) {
		drop(NEGATIVE);
		return;
	}
	row = bpf_map_lookup_elem(&rows, &key);
	if (!row)
		row = new_row(cpu, &key);
	if (!row) {
		drop(NO_ROOM_FOR_ROW);
		return;
	}
	__sync_fetch_and_add(&row->count, 1);
	__sync_fetch_and_add(&row->total_ns, ns);
	raise(&row->max_ns, ns);
	if (!ns) {
		__sync_fetch_and_add(&row->zero_count, 1);
		return;
	}
	bucket = bucket_of(ns);
	if (bucket < BUCKETS)
		__sync_fetch_and_add(&row->buckets[bucket], 1);
}
