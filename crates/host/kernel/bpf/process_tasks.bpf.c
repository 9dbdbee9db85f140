/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Counts for processes by fields of their tasks (`task_fields.h`).
 *
 * Counted are the threads of the *wanted* processes, the tasks that these threads create, and so on. As with perf's
 * events, a task's faults, switches and migrations count until the task begins to end. Its run time counts until its
 * memory is freed, because the kernel adds the time up to a task's last switch only at that switch.
 */
#include "task_fields.h"

/*
 * The ids of the wanted processes: of running ones until the first round over all tasks has recorded their
 * threads, of a command from then on until its exec.
 */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u32);
} wanted SEC(".maps");

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_line);
} lines SEC(".maps");

/*
 * For a command's task before its exec: CLOCK_MONOTONIC less the scheduler's clock, by which the kernel notes when it
 * last added to the task's run time.
 */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} clock_ahead SEC(".maps");

INLINE struct tiptoe_known *known_of(struct task_struct *task)
{
	u64 address = (u64)task;

	return bpf_map_lookup_elem(&known, &address);
}

INLINE int is_wanted(struct task_struct *task)
{
	u32 process = READ(task, tgid);

	return bpf_map_lookup_elem(&wanted, &process) != 0;
}

INLINE void charge_task(struct tiptoe_known *own, struct task_struct *task)
{
	u32 zero = 0;
	struct tiptoe_line *line = bpf_map_lookup_elem(&lines, &zero);

	if (line && own->is_ending)
		charge_time(line, &own->charged, task);
	else if (line)
		charge_growth(line, &own->charged, task);
}

/* Charges a task's growth. tiptoe runs this for all tasks. */
SEC("iter/task")
int asked(struct bpf_iter__task *args)
{
	struct task_struct *task = args->task;
	struct tiptoe_round *round = round_of_all();
	struct tiptoe_known *own, new = {};

	if (!task || !round || task->exit_state & EXIT_DEAD)
		return 0;
	own = known_of(task);
	if (own) {
		charge_task(own, task);
		if (own->is_ending)
			__sync_fetch_and_add(&round->seen_ending, 1);
	} else if (is_wanted(task)) {
		if (is_older(task))
			charged_up_to_now(&new.charged, task);
		record(task, &new, round);
	}
	return 0;
}

/* Compares the clocks when a command that has not called exec gets a CPU. */
SEC("tp_btf/sched_switch")
int switched(u64 *args)
{
	struct task_struct *next = (void *)args[2];
	u32 zero = 0;
	u64 *ahead = bpf_map_lookup_elem(&clock_ahead, &zero);

	if (ahead && is_wanted(next))
		*ahead = bpf_ktime_get_ns() - READ(next, se.exec_start);
	return 0;
}

/*
 * Begins to count a command when exec gives its task a new name. At that point exec enables perf's events, too: the old
 * memory is gone, and the new program is not loaded yet. The task's run time lacks what it ran since the kernel last
 * added to it.
 */
SEC("tp_btf/task_rename")
int renamed(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct tiptoe_round *round = round_of_all();
	struct tiptoe_known new = {};
	u32 zero = 0, process = READ(task, tgid);
	u64 *ahead = bpf_map_lookup_elem(&clock_ahead, &zero);

	if (!round || !is_wanted(task))
		return 0;
	charged_up_to_now(&new.charged, task);
	if (ahead && *ahead)
		new.charged.runtime_ns += bpf_ktime_get_ns() - *ahead - READ(task, se.exec_start);
	record(task, &new, round);
	bpf_map_delete_elem(&wanted, &process);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int born(u64 *args)
{
	struct task_struct *parent = (void *)args[0], *child = (void *)args[1];
	struct tiptoe_round *round = round_of_all();
	u64 began = bpf_ktime_get_ns();
	struct tiptoe_known new = {};

	if (!round)
		return 0;
	forget_former(child, round);
	/* The first round may not have recorded the parent yet. */
	if (!known_of(parent) && !is_wanted(parent))
		return 0;
	record(child, &new, round);
	note_run(round, began);
	return 0;
}

/* Charges a task that begins to end, but still runs. */
SEC("tp_btf/sched_process_exit")
int ending(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct tiptoe_round *round = round_of_all();
	struct tiptoe_known *own = known_of(task);

	if (round && own && !own->is_ending) {
		charge_task(own, task);
		own->is_ending = 1;
		__sync_fetch_and_add(&round->ending, 1);
	}
	return 0;
}

/* Charges a task for the last time, an RCU grace period after it was reaped. */
SEC("tp_btf/sched_process_free")
int ended(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct tiptoe_round *round = round_of_all();
	u64 began = bpf_ktime_get_ns(), address = (u64)task;
	struct tiptoe_known *own = known_of(task);

	if (!round || !own)
		return 0;
	charge_task(own, task);
	if (own->is_ending)
		__sync_fetch_and_add(&round->ended, 1);
	bpf_map_delete_elem(&known, &address);
	note_run(round, began);
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
