// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Finds which threads have the events that tiptoe opens thread by thread, while threads start
 * and exit: a thread inherits its parent's events.
 *
 * The kernel decides what is inherited somewhere within clone(2). A clone that began after the
 * opening gave all events, one that ended before it none. One that overlaps it may have done
 * either (a race), so it spoils the opening: tiptoe closes its events, inherited ones too.
 *
 * An opening is a number; a thread's events are from exactly one. Times are CLOCK_MONOTONIC's.
 *
 * A thread not in `threads` existed before the programs were attached, or is about to be
 * reported.
 */
#include "ids.h"

#define THREADS 65536

enum {
	CLONE = 56,
	CLONE3 = 435,
	CLONE_THREAD = 0x10000,
};

/* Marks an opening in progress, in place of its time. */
#define UNDER_WAY (~0ull)

/* Settings, written before loading. */
const volatile u32 process = 0;

/* Threads born without events. */
volatile u32 without;

/* The opening of each thread's events; 0 if born without. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, u32);
} threads SEC(".maps");

/* When each opening was done. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, u64);
} openings SEC(".maps");

/* Openings that a clone overlapped. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, u32);
} spoilt SEC(".maps");

/* When each thread entered clone. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, u64);
} cloning SEC(".maps");

/* The size of an id. A thread has one in each PID namespace, the innermost last. */
#define UPID 16

/* Returns a thread's id in tiptoe's PID namespace: its process's innermost. */
INLINE u32 id_of(struct task_struct *task)
{
	struct pid *pid;
	u64 innermost;
	u32 id = 0;

	if (!namespace_ino)
		return READ(task, pid);
	pid = READ(task, thread_pid);
	innermost = (u64)__builtin_preserve_access_index(&pid->numbers) + (u64)READ(pid, level) * UPID;
	bpf_probe_read_kernel(&id, sizeof(id), (void *)innermost);
	return id;
}

SEC("raw_tracepoint/sys_enter")
int clone_begins(u64 *args)
{
	u64 ids, now;
	u32 thread;

	if (args[1] != CLONE && args[1] != CLONE3)
		return 0;
	ids = current_ids();
	thread = ids;
	if (ids >> 32 != process)
		return 0;
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&cloning, &thread, &now, ANY);
	return 0;
}

SEC("raw_tracepoint/task_newtask")
int thread_born(u64 *args)
{
	u64 ids = current_ids();
	struct task_struct *born = (struct task_struct *)args[0];
	u32 parent = ids, child = 0, none = 0, yes = 1, *opening;
	u64 *began, *since;

	if (ids >> 32 != process)
		return 0;
	began = bpf_map_lookup_elem(&cloning, &parent);
	if (!(args[1] & CLONE_THREAD))
		goto out;
	child = id_of(born);
	opening = bpf_map_lookup_elem(&threads, &parent);
	since = opening ? bpf_map_lookup_elem(&openings, opening) : 0;
	if (since && began && *since != UNDER_WAY && *began > *since) {
		bpf_map_update_elem(&threads, &child, opening, NO_EXIST);
		goto out;
	}
	bpf_map_update_elem(&threads, &child, &none, NO_EXIST);
	if (since)
		bpf_map_update_elem(&spoilt, opening, &yes, ANY);
	__sync_fetch_and_add(&without, 1);
out:
	bpf_map_delete_elem(&cloning, &parent);
	return 0;
}

SEC("raw_tracepoint/sched_process_exit")
int thread_ends(void)
{
	u64 ids = current_ids();
	u32 thread = ids;

	if (ids >> 32 == process) {
		bpf_map_delete_elem(&threads, &thread);
		bpf_map_delete_elem(&cloning, &thread);
	}
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
