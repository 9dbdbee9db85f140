// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Times one process's futex calls and keeps histograms. In programs that can be patched the agent, tiptoe's library
 * in the process, does this (core/wire/src/futex.rs).
 *
 *   state of a thread             until                                        its `since`
 *   is in no wait                 a call that may wait                         0
 *   waits                         that call returns                            when the begin was recorded
 *
 * The kernel reports an interrupted call's end before a signal handler runs, so a thread is in at most one wait. A
 * restarted call counts again, unless restart_syscall restarts it. A begin that finds a wait in progress proves that
 * the wait's end was missed.
 *
 * `frames` leads from libc to the call site in the code that called libc (its *user*). A key is an address in libc
 * where a thread may be or return to. A value is the distance from the stack pointer to the caller's frame. Without
 * an entry only the futex call's address is known. tiptoe may add entries late, so a caller not found when a wait
 * begins is looked up again when the wait ends.
 *
 * A waking thread records the futex, the time and its own call site in the cell of `wakers` that the futex's hash
 * selects. A waiter reads the cell after its wait (engines/futex/src/board.rs). A cell is TAKEN while it is written.
 * Other waking threads then record nothing, because a program must not spin here.
 *
 * The futex call's own tracepoints slow this call more than sys_enter would (two empty programs: 480 ns instead of
 * 170), but all other calls less (60 ns instead of 170).
 */
#include "ids.h"
#include "futex_layout.h"

#define THREADS 16384
#define ROWS 8192
#define PLACES 16384
/* The most frames of libc between a call and its user. */
#define MOST_FRAMES 8
#define WAKER_BITS 12
#define TAKEN (~0ull)

struct own {
	u64 waits;
	u64 wakes;
	/* Space for a new row, larger than a program's stack. */
	struct tiptoe_futex_row row;
};

#include "run.h"

/* Settings, written before loading. */
const volatile u32 process = 0;
const volatile u32 by_thread = 0;
/* Skips calls that return to a `patched` address. */
const volatile u32 beside_agent = 0;
/* An agent's thread, whose calls do not count. */
const volatile u32 agent_thread = 0;
/* The number of execs before the process runs the program to watch. */
const volatile u32 expected_execs = 0;

/* How often the process called exec. */
volatile u32 execs;

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_thread);
} threads SEC(".maps");

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, ROWS);
	TYPE(key, struct tiptoe_futex_key);
	TYPE(value, struct tiptoe_futex_row);
} rows SEC(".maps");

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, PLACES);
	TYPE(key, u64);
	TYPE(value, u32);
} frames SEC(".maps");

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, PLACES);
	TYPE(key, u64);
	TYPE(value, u32);
} patched SEC(".maps");

struct cell {
	u64 since;
	u64 address;
	u64 site;
	u64 rest[5];
};

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1 << WAKER_BITS);
	TYPE(key, u32);
	TYPE(value, struct cell);
} wakers SEC(".maps");

/* The user's call site, the last address in libc, and the start of the user's frame. */
struct caller {
	u64 site;
	u64 via;
	u64 frame;
	/* Set if the agent reports the call. */
	int patched;
};

struct enter_futex {
	u64 common;
	u64 nr;
	u64 address;
	u64 operation;
};

struct exit_futex {
	u64 common;
	u64 nr;
	s64 result;
};

/* A program's result: 0 would hide the event from the tracepoint's other users. */
#define PASS 1

INLINE u64 word(u64 at)
{
	u64 value = 0;

	bpf_probe_read_user(&value, sizeof(value), (void *)at);
	return value;
}

INLINE struct pt_regs *registers(void)
{
	return bpf_task_pt_regs(bpf_get_current_task_btf());
}

INLINE int is_patched(u64 at)
{
	return beside_agent && bpf_map_lookup_elem(&patched, &at);
}

INLINE void find_caller(struct caller *caller)
{
	struct pt_regs *regs = registers();
	u64 at = regs->ip, sp = regs->sp, bp = regs->bp;

	caller->via = at;
	caller->patched = is_patched(at);
	for (int i = 0; i < MOST_FRAMES; i++) {
		u32 *found = bpf_map_lookup_elem(&frames, &at);

		if (!found)
			break;
		caller->via = at;
		if (*found & BY_FRAME_POINTER) {
			sp = bp + 16;
			bp = word(sp - 16);
		} else {
			sp += *found;
		}
		at = word(sp - 8);
		caller->patched |= is_patched(at);
	}
	caller->site = at;
	caller->frame = sp;
}

INLINE struct cell *waker(u64 address)
{
	/* A futex has four bytes, so its address ends with two zero bits. */
	u32 hash = ((address >> 2) * 0x9e3779b97f4a7c15ull) >> (64 - WAKER_BITS);

	return bpf_map_lookup_elem(&wakers, &hash);
}

INLINE void note_waker(u64 address, u64 site, u64 now)
{
	struct cell *cell = waker(address);
	u64 before;

	if (!cell)
		return;
	before = *(volatile u64 *)&cell->since;
	if (before == TAKEN || __sync_val_compare_and_swap(&cell->since, before, TAKEN) != before)
		return;
	*(volatile u64 *)&cell->address = address;
	*(volatile u64 *)&cell->site = site;
	__sync_lock_test_and_set(&cell->since, now);
}

/* Returns the call site that woke an address between two times; 0 if unknown. */
INLINE u64 woken_by(u64 address, u64 from, u64 until)
{
	struct cell *cell = waker(address);
	u64 then, at, site;

	if (!cell)
		return 0;
	then = *(volatile u64 *)&cell->since;
	at = *(volatile u64 *)&cell->address;
	site = *(volatile u64 *)&cell->site;
	if (then < from || then > until || at != address)
		return 0;
	return *(volatile u64 *)&cell->since == then ? site : 0;
}

/* Records the caller, and whether an episode begins. An episode is a user's lock call, which may wait repeatedly. */
INLINE void note_caller(struct tiptoe_thread *thread, const struct caller *caller)
{
	thread->first = thread->episode_address != thread->address ||
			thread->episode_site != caller->site || thread->episode_frame != caller->frame;
	thread->episode_address = thread->address;
	thread->episode_site = caller->site;
	thread->episode_frame = caller->frame;
	thread->site = caller->site;
	thread->via = (thread->via & ~ADDRESS) | caller->via;
}

INLINE void begin(struct cpu *cpu, u32 tid, const struct caller *caller, u64 address, u32 operation)
{
	struct tiptoe_thread *thread = bpf_map_lookup_elem(&threads, &tid);

	cpu->own.waits += 1;
	if (!thread) {
		struct tiptoe_thread none = {};

		bpf_map_update_elem(&threads, &tid, &none, NO_EXIST);
		thread = bpf_map_lookup_elem(&threads, &tid);
		if (!thread) {
			drop(NO_ROOM_FOR_THREAD);
			return;
		}
	}
	if (thread->since)
		drop(NO_END);
	thread->address = address;
	thread->via = (u64)operation << OPERATION_SHIFT;
	note_caller(thread, caller);
	thread->since = bpf_ktime_get_ns();
}

INLINE void wake(struct cpu *cpu, u32 tid, const struct caller *caller, u64 address)
{
	struct tiptoe_thread *thread = bpf_map_lookup_elem(&threads, &tid);

	note_waker(address, caller->site, cpu->entered_ns);
	if (thread && thread->episode_address == address)
		thread->episode_address = 0;
}

/* FUTEX_WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2. */
INLINE int waits(u32 operation)
{
	return 1ull << operation & (1 << 0 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 13);
}

/* FUTEX_WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, UNLOCK_PI, WAKE_BITSET, CMP_REQUEUE_PI. */
INLINE int wakes(u32 operation)
{
	return 1ull << operation & (1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 10 | 1 << 12);
}

SEC("tracepoint/syscalls/sys_enter_futex")
int enter_futex(struct enter_futex *call)
{
	u64 ids = current_ids();
	u32 operation = call->operation & 0x7f;
	struct caller caller;
	struct cpu *cpu;
	int ours;

	if (ids >> 32 != process || operation > 31 || execs > expected_execs)
		return PASS;
	cpu = enter();
	if (!cpu)
		return PASS;
	find_caller(&caller);
	ours = (u32)ids != agent_thread && !caller.patched;
	if (waits(operation) && ours) {
		begin(cpu, (u32)ids, &caller, call->address, operation);
	} else if (wakes(operation)) {
		/* Uncounted wakes are recorded, because they may end a counted wait. */
		wake(cpu, (u32)ids, &caller, call->address);
		cpu->own.wakes += ours;
	}
	leave(cpu);
	return PASS;
}

INLINE u32 end_of(s64 result)
{
	if (result >= 0)
		return WOKEN;
	switch (result) {
	case -11: /* EAGAIN */
		return AT_ONCE;
	case -110: /* ETIMEDOUT */
		return TIMED_OUT;
	case -4: /* EINTR, and the kernel's results that become it or restart the call */
	case -512:
	case -513:
	case -514:
	case -516:
		return INTERRUPTED;
	}
	return OTHER;
}

/* Makes the row of a key. */
NO_INLINE struct tiptoe_futex_row *new_row(struct cpu *cpu, struct tiptoe_futex_key *key)
{
	if (!cpu || !key)
		return 0;
	bpf_get_current_comm(cpu->own.row.comm, sizeof(cpu->own.row.comm));
	/* If another CPU was faster, the other CPU's row stays. */
	bpf_map_update_elem(&rows, key, &cpu->own.row, NO_EXIST);
	return bpf_map_lookup_elem(&rows, key);
}

INLINE void blame(struct tiptoe_futex_row *row, u64 site, u64 ns)
{
	for (int i = 0; i < WAKERS; i++) {
		struct tiptoe_waker *waker = &row->wakers[i];
		u64 held = waker->site;

		if (!held)
			held = __sync_val_compare_and_swap(&waker->site, 0, site) ?: site;
		if (held != site)
			continue;
		__sync_fetch_and_add(&waker->count, 1);
		__sync_fetch_and_add(&waker->total_ns, ns);
		return;
	}
}

INLINE void slept(struct tiptoe_futex_row *row, u64 ns)
{
	u32 bucket;

	__sync_fetch_and_add(&row->slept_ns, ns);
	raise(&row->longest_ns, ns);
	if (!ns) {
		__sync_fetch_and_add(&row->zero_count, 1);
		return;
	}
	bucket = bucket_of(ns);
	if (bucket < BUCKETS)
		__sync_fetch_and_add(&row->buckets[bucket], 1);
}

INLINE void end(struct cpu *cpu, const struct tiptoe_thread *thread, u32 tid, s64 result)
{
	struct tiptoe_futex_key key = {
		.address = thread->address,
		.site = thread->site,
		.via = thread->via,
		.thread = by_thread ? tid : 0,
	};
	s64 ns = cpu->entered_ns - thread->since;
	struct tiptoe_futex_row *row;
	u32 end = end_of(result);
	u64 site;

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
	if (end < ENDS)
		__sync_fetch_and_add(&row->ends[end], 1);
	if (thread->first)
		__sync_fetch_and_add(&row->episodes, 1);
	if (end == AT_ONCE)
		return;
	slept(row, ns);
	if (end != WOKEN)
		return;
	site = woken_by(thread->address, thread->since, cpu->entered_ns);
	if (site)
		blame(row, site, ns);
}

/* Returns whether a wait's user is unknown. */
INLINE int is_unknown(const struct tiptoe_thread *thread)
{
	return thread->site == (thread->via & ADDRESS);
}

SEC("tracepoint/syscalls/sys_exit_futex")
int exit_futex(struct exit_futex *call)
{
	u64 ids = current_ids();
	struct tiptoe_thread *thread;
	u32 tid = ids;
	struct cpu *cpu;

	if (ids >> 32 != process)
		return PASS;
	thread = bpf_map_lookup_elem(&threads, &tid);
	/* The call wakes, or it began to wait before the programs were attached. */
	if (!thread || !thread->since)
		return PASS;
	cpu = enter();
	if (!cpu)
		return PASS;
	if (is_unknown(thread)) {
		struct caller caller;

		find_caller(&caller);
		if (caller.site != thread->site)
			note_caller(thread, &caller);
	}
	end(cpu, thread, tid, call->result);
	/* Ends the episode, because the unknown user's next lock call would look like this one. */
	if (is_unknown(thread) && end_of(call->result) != AT_ONCE)
		thread->episode_address = 0;
	thread->since = 0;
	leave(cpu);
	return PASS;
}

/* Removes an exited thread, because its id may be reused. */
SEC("raw_tracepoint/sched_process_exit")
int thread_exit(void)
{
	u64 ids = current_ids();
	struct tiptoe_thread *thread;
	u32 tid = ids;

	if (ids >> 32 != process)
		return 0;
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (!thread)
		return 0;
	if (thread->since)
		drop(ENDED_INSIDE);
	bpf_map_delete_elem(&threads, &tid);
	return 0;
}

/* Counts execs, because another program has other locks and code. */
SEC("raw_tracepoint/sched_process_exec")
int program_exec(void)
{
	if (current_ids() >> 32 == process)
		execs += 1;
	return 0;
}

/* Counts calls that are not timed: futex_waitv, and those new in Linux 6.7. */
SEC("tracepoint/syscalls/sys_enter_futex_waitv")
int enter_other(void)
{
	if (current_ids() >> 32 == process)
		drop(OTHER_CALLS);
	return PASS;
}

char licence[] SEC("license") = "Dual MIT/GPL";
