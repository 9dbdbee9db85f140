// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Finds which threads of a process have perf events. tiptoe opens the events of one thread after another (numbered
 * *openings*).
 *
 * The kernel copies events somewhere within clone(2). A clone that began after the parent's opening was done copied
 * all events; a clone that ended before the opening copied none. A clone that overlaps the opening may have copied
 * some (a race), and *spoils* the opening: tiptoe then closes the opening's events, which closes the copies.
 *
 * All events of a thread are from one opening. Times are by CLOCK_MONOTONIC.
 *
 * A thread that is not in `threads` is older than the programs, or its birth is about to be reported.
 *
 * Once all openings are done, `clone_begins` is detached, because it runs at each system call of the machine. The
 * other programs stay attached, so that tiptoe can account for threads' debug registers.
 */
#include "ids.h"

#define THREADS 65536

enum {
	CLONE = 56,
	CLONE3 = 435,
	CLONE_THREAD = 0x10000,
};

/* In `openings`: the opening is in progress. */
#define UNDER_WAY (~0ull)

/* In `changes`, marks the birth of a thread with events; other changes are ends. */
#define BORN (1ull << 32)
/* A flag of bpf_ringbuf_output: wakes nobody, because tiptoe polls the ring. */
#define NO_WAKEUP 1

/* Settings, written before loading. */
const volatile u32 process = 0;

/* How many threads were born without events. */
volatile u32 without;

/* The number of each thread's opening; 0 for a thread born without events. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, u32);
} threads SEC(".maps");

/* When each opening was done, by the opening's number; or `UNDER_WAY`. */
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

/* Births of threads with events, and ends of threads, in order: an id, with the bit `BORN` for a birth. */
struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 1 << 20);
} changes SEC(".maps");

/* The cells of `words`: whether all openings are done; births, then ends, that found no room in `changes`. */
enum { ARE_DONE, LOST_BIRTHS, LOST_ENDS, WORDS };
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, WORDS);
	TYPE(key, u32);
	TYPE(value, u64);
} words SEC(".maps");

INLINE void report(u64 change, u32 lost)
{
	u64 *count;

	if (!bpf_ringbuf_output(&changes, &change, sizeof(change), NO_WAKEUP))
		return;
	count = bpf_map_lookup_elem(&words, &lost);
	if (count)
		__sync_fetch_and_add(count, 1);
}

INLINE int inherits_all(const u64 *since, const u64 *began)
{
	u32 word = ARE_DONE;
	u64 *done;

	if (!since || *since == UNDER_WAY)
		return 0;
	if (began)
		return *began > *since;
	done = bpf_map_lookup_elem(&words, &word);
	return done && *done;
}

/* The size of `struct upid`, a thread's id in a PID namespace. The innermost namespace's is last. */
#define UPID 16

/* Returns a thread's id in its innermost PID namespace, which must be tiptoe's. */
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
	if (inherits_all(since, began)) {
		bpf_map_update_elem(&threads, &child, opening, NO_EXIST);
		report(child | BORN, LOST_BIRTHS);
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
		report(thread, LOST_ENDS);
	}
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
