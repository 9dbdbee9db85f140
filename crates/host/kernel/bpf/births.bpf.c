// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Which threads of a process have the events that tiptoe opens for its threads one after the other, while threads
 * are born and die: a thread inherits its parent's.
 *
 * What a thread inherits is decided somewhere within the clone(2) that makes it. So a clone that began behind the
 * opening gave its thread all; one that ended before it gave nothing; and one that overlaps with it spoils the
 * opening, as nobody can tell: tiptoe then closes what it opened there, and with that all that came of it.
 *
 * An opening is a number; whoever has events has them from one. Times are those of CLOCK_MONOTONIC.
 *
 * A thread that is not told of was there before us, or is about to be told of.
 */
#include "ids.h"

#define THREADS 65536

enum {
	CLONE = 56,
	CLONE3 = 435,
	CLONE_THREAD = 0x10000,
};

/* In place of the time since which an opening is done. */
#define UNDER_WAY (~0ull)

/* Settings, written before the program is loaded. */
const volatile u32 process = 0;

/* Threads that were born without events. */
volatile u32 without;

/* The opening that each thread's events are from; 0 where it was born without. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, u32);
} threads SEC(".maps");

/* Since when each is done. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, u64);
} openings SEC(".maps");

/* Openings that a clone overlapped with. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, u32);
} spoilt SEC(".maps");

/* Since when each thread is within clone. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, u64);
} cloning SEC(".maps");

/* What one id of a thread takes in the kernel, of which it has one in each namespace, the innermost last. */
#define UPID 16

/* The id of a thread that is in our own namespace, as its process is. */
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
