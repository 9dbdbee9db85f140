// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Times waits for the kernel's own locks, and keeps their histograms.
 *
 * A wait's begin and end have the lock's address, but only the begin has the lock's type. So the begin is stored:
 *
 *   waiting                       where the begin is stored                    keyed by
 *   a thread that may sleep       `waits`, a hash                              thread and lock
 *   a CPU that spins              `cpus`, four slots: a thread, a softirq,     lock
 *                                 an interrupt and an NMI may spin at once
 *
 * A sleeping wait may begin twice (a mutex spins, then sleeps); the second begin changes nothing. A CPU spins for a
 * lock once at a time, and for at most four locks. So if a begin finds its lock in a slot, or no free slot, an
 * end was missed. Most work is done at the begin, because the thread then waits anyway; at the end any work delays
 * other waiters.
 *
 * Map operations take locks, whose contention would run these programs again. `busy` prevents that recursion; the
 * begin and the end of such a wait are dropped.
 */
#include "rows.h"

/* Counts only waits for the waiting task's own mmap_lock. */
const volatile u32 only_mmap = 0;

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, WAITS);
	TYPE(key, struct wait_key);
	TYPE(value, struct tiptoe_wait);
} waits SEC(".maps");

INLINE struct mm_struct *current_mm(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return READ(task, mm);
}

/* Returns whether a lock is the waiting task's own mmap_lock. */
INLINE int is_own_mmap_lock(u64 lock)
{
	struct mm_struct *mm = current_mm();

	return mm && lock == (u64)__builtin_preserve_access_index(&mm->mmap_lock);
}

/* Returns whether a waiter stays on its CPU until it has the lock. */
INLINE int spins(u32 flags)
{
	return (flags & (SPIN | RT | PERCPU | MUTEX)) == SPIN;
}

INLINE void begin_spinning(void *ctx, struct cpu *cpu, u64 lock, u32 traits)
{
	struct slot *free = 0;

	for (int i = 0; i < SLOTS; i++) {
		struct slot *slot = &cpu->own.slots[i];

		if (slot->lock == lock) {
			drop(NO_END);
			free = slot;
			break;
		}
		if (!free && !slot->lock)
			free = slot;
	}
	if (!free) {
		drop(NO_END);
		free = &cpu->own.slots[0];
	}
	free->lock = lock;
	start(ctx, &free->wait, traits);
}

INLINE void begin_sleeping(void *ctx, u64 lock, u32 traits, u64 tid)
{
	struct wait_key key = { .lock = lock, .tid = tid };
	struct tiptoe_wait wait = {};

	if (bpf_map_lookup_elem(&waits, &key))
		return;
	start(ctx, &wait, traits);
	if (bpf_map_update_elem(&waits, &key, &wait, ANY))
		drop(NO_ROOM_TO_WAIT);
}

SEC("raw_tracepoint/contention_begin")
int contention_begin(u64 *args)
{
	u64 ids = bpf_get_current_pid_tgid();
	u64 lock = args[0];
	u32 flags = args[1];
	struct cpu *cpu;

	/*
	 * A raw tracepoint has no filter in the kernel, so this program runs for each contended lock of the machine.
	 * The flags exclude most locks that are no mmap_lock.
	 */
	if (only_mmap && flags != READER && flags != WRITER)
		return 0;
	if (!is_wanted())
		return 0;
	cpu = enter();
	if (!cpu)
		return 0;
	if ((flags == READER || flags == WRITER) && is_own_mmap_lock(lock))
		flags |= MMAP;
	if (flags & MUTEX)
		flags &= ~SPIN;
	if (!only_mmap || flags & MMAP) {
		if (spins(flags))
			begin_spinning(args, cpu, lock, flags);
		else
			begin_sleeping(args, lock, flags, (u32)ids);
	}
	leave(cpu);
	return 0;
}

INLINE int end_spinning(struct cpu *cpu, u64 lock, u32 outcome)
{
	for (int i = 0; i < SLOTS; i++) {
		struct slot *slot = &cpu->own.slots[i];

		if (slot->lock != lock)
			continue;
		slot->lock = 0;
		count(cpu, &slot->wait, lock, outcome, waited_ns(&slot->wait, cpu->entered_ns));
		return 1;
	}
	return 0;
}

INLINE void end_sleeping(struct cpu *cpu, u64 lock, u32 outcome, u64 tid)
{
	struct wait_key key = { .lock = lock, .tid = tid };
	struct tiptoe_wait *found = bpf_map_lookup_elem(&waits, &key);
	struct tiptoe_wait wait;

	if (!found) {
		if (!only_mmap || is_own_mmap_lock(lock))
			drop(NO_BEGIN);
		return;
	}
	wait = *found;
	bpf_map_delete_elem(&waits, &key);
	count(cpu, &wait, lock, outcome, waited_ns(&wait, cpu->entered_ns));
}

SEC("raw_tracepoint/contention_end")
int contention_end(u64 *args)
{
	u64 ids = bpf_get_current_pid_tgid();
	u64 lock = args[0];
	u32 outcome = (s32)args[1] ? FAILED : 0;
	struct cpu *cpu;

	if (!is_wanted())
		return 0;
	cpu = enter();
	if (!cpu)
		return 0;
	if (only_mmap || !end_spinning(cpu, lock, outcome))
		end_sleeping(cpu, lock, outcome, (u32)ids);
	leave(cpu);
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
