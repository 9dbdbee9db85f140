// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Times every acquisition of an mmap_lock, with or without a wait.
 *
 * What `returned` means depends on the thread's last report for that mmap_lock:
 *
 *   last report                   `returned` reports                           meaning
 *   start_locking                 anything                                     an acquisition, or a failed one
 *   returned, for writing         reading, successful, without a start         a downgrade
 *   nothing                       anything                                     the end of an unseen begin
 *
 * So a thread's last acquisition for writing is kept until the thread's next `start_locking`. These programs see no
 * exits of threads, so the map evicts its least recently used entries.
 */
#include "rows.h"

/* A program's result: 0 would hide the event from the tracepoint's other users. */
#define PASS 1

/* A wait's flag: by its reports, the thread holds the lock for writing. */
#define WROTE (1 << 11)

struct {
	UINT(type, MAP_LRU_HASH);
	UINT(max_entries, WAITS);
	TYPE(key, struct wait_key);
	TYPE(value, struct tiptoe_wait);
} waits SEC(".maps");

INLINE u32 mode(u8 write)
{
	return MMAP | (write ? WRITER : READER);
}

INLINE void begin(void *ctx, struct mm_struct *mm, u8 write, u64 tid)
{
	struct wait_key key = { .lock = (u64)__builtin_preserve_access_index(&mm->mmap_lock), .tid = tid };
	struct tiptoe_wait wait = {};

	start(ctx, &wait, mode(write));
	if (bpf_map_update_elem(&waits, &key, &wait, ANY))
		drop(NO_ROOM_TO_WAIT);
}

SEC("tracepoint/mmap_lock/mmap_lock_start_locking")
int start_locking(struct trace_event_raw_mmap_lock *event)
{
	u64 ids = bpf_get_current_pid_tgid();
	struct cpu *cpu;

	if (!is_wanted())
		return PASS;
	cpu = enter();
	if (!cpu)
		return PASS;
	begin(event, event->mm, event->write, (u32)ids);
	leave(cpu);
	return PASS;
}

/* Counts a write lock that became a read lock. */
INLINE void downgrade(void *ctx, struct cpu *cpu, struct tiptoe_wait *wait, u64 lock)
{
	start(ctx, wait, mode(0));
	count(cpu, wait, lock, DOWNGRADED, 0);
}

INLINE void end(void *ctx, struct cpu *cpu, u64 lock, u32 outcome, u8 write, u64 tid)
{
	struct wait_key key = { .lock = lock, .tid = tid };
	struct tiptoe_wait *found = bpf_map_lookup_elem(&waits, &key);
	struct tiptoe_wait wait;

	if (!found) {
		drop(NO_BEGIN);
		return;
	}
	wait = *found;
	if (write && !outcome)
		found->traits = WROTE;
	else
		bpf_map_delete_elem(&waits, &key);
	if (!(wait.traits & WROTE))
		count(cpu, &wait, lock, outcome, waited_ns(&wait, cpu->entered_ns));
	else if (!write && !outcome)
		downgrade(ctx, cpu, &wait, lock);
	else
		drop(NO_BEGIN);
}

SEC("tracepoint/mmap_lock/mmap_lock_acquire_returned")
int acquire_returned(struct trace_event_raw_mmap_lock_acquire_returned *event)
{
	u64 ids = bpf_get_current_pid_tgid();
	struct mm_struct *mm = event->mm;
	struct cpu *cpu;

	if (!is_wanted())
		return PASS;
	cpu = enter();
	if (!cpu)
		return PASS;
	end(event, cpu, (u64)__builtin_preserve_access_index(&mm->mmap_lock), event->success ? 0 : FAILED,
	    event->write, (u32)ids);
	leave(cpu);
	return PASS;
}

char licence[] SEC("license") = "Dual MIT/GPL";
