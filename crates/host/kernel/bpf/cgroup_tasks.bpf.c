/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Counts for cgroups by fields of their tasks.
 *
 * A task's growth (`task_fields.h`) is charged when tiptoe reads counts, when the task changes its
 * cgroup, and when its memory is freed, after its last switch. The growth goes to the cgroup
 * recorded at the last charge, because the task may have moved since.
 */
#include "cgroups_news.h"
#include "cgroups_slots.h"
#include "task_fields.h"

/* The charged switches of each CPU's idle task. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} idle_switches SEC(".maps");

/*
 * Returns a task's slot; OTHERS if the cgroup was removed, because another cgroup may have the slot now.
 */
INLINE u32 slot_still(const struct tiptoe_known *own)
{
	u32 slot = own->slot;
	u64 *owner = bpf_map_lookup_elem(&owners, &slot);

	return slot < FIRST || (owner && *owner == own->id) ? slot : OTHERS;
}

INLINE void charge_task(struct tiptoe_known *own, struct task_struct *task)
{
	u32 slot = slot_still(own);
	struct tiptoe_line *line = bpf_map_lookup_elem(&lines, &slot);

	if (line)
		charge_growth(line, &own->charged, task);
}

INLINE void now_in(struct tiptoe_known *own, u64 id)
{
	if (own->id != id) {
		own->id = id;
		own->slot = slot_for(id);
	}
}

/* Initializes a record, so that what a task did before the count is not charged. */
INLINE void begin_with(struct tiptoe_known *own, struct task_struct *task)
{
	if (is_older(task))
		charged_up_to_now(&own->charged, task);
}

/* Returns a task's record; an unknown task is recorded in cgroup `id`. */
INLINE struct tiptoe_known *known_of(struct task_struct *task, struct tiptoe_round *round, u64 id)
{
	u64 address = (u64)task;
	struct tiptoe_known *own = bpf_map_lookup_elem(&known, &address), new = {};

	if (own)
		return own;
	begin_with(&new, task);
	now_in(&new, id);
	record(task, &new, round);
	return bpf_map_lookup_elem(&known, &address);
}

/* Charges the idle task of a task's CPU, because the iterator skips idle tasks. */
INLINE void charge_idle(struct task_struct *task)
{
	struct rq *queue = task->se.cfs_rq->rq;
	u32 cpu = queue->cpu, slot = IDLE;
	u64 *before = bpf_map_lookup_elem(&idle_switches, &cpu);
	struct tiptoe_line *line = bpf_map_lookup_elem(&lines, &slot);
	struct task_struct *idle = queue->idle;

	if (before && line)
		charge_to(&line->switches, before, idle->nvcsw + idle->nivcsw);
}

/* Charges a task's growth. tiptoe runs this for all tasks. */
SEC("iter/task")
int asked(struct bpf_iter__task *args)
{
	struct task_struct *task = args->task;
	struct tiptoe_round *round = round_of_all();
	struct tiptoe_known *own;
	u64 id;

	if (!task || !round || task->exit_state & EXIT_DEAD)
		return 0;
	id = cgroup_of(task);
	own = known_of(task, round, id);
	if (own) {
		charge_task(own, task);
		now_in(own, id);
		if (own->is_ending)
			__sync_fetch_and_add(&round->seen_ending, 1);
	}
	charge_idle(task);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int born(u64 *args)
{
	struct task_struct *child = (void *)args[1];
	struct tiptoe_round *round = round_of_all();
	u64 began = bpf_ktime_get_ns();
	struct tiptoe_known new = {};

	if (!round)
		return 0;
	forget_former(child, round);
	now_in(&new, cgroup_of(child));
	record(child, &new, round);
	note_run(round, began);
	return 0;
}

/* Counts a task that begins to end, but still runs. */
SEC("tp_btf/sched_process_exit")
int ending(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct tiptoe_round *round = round_of_all();
	struct tiptoe_known *own;

	if (!round)
		return 0;
	own = known_of(task, round, cgroup_of(task));
	if (own && !own->is_ending) {
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
	struct tiptoe_known *own;

	if (!round)
		return 0;
	own = known_of(task, round, cgroup_of(task));
	if (own) {
		charge_task(own, task);
		if (own->is_ending)
			__sync_fetch_and_add(&round->ended, 1);
		bpf_map_delete_elem(&known, &address);
	}
	note_run(round, began);
	return 0;
}

/* The most threads charged at a process's move. For larger processes, tiptoe charges all tasks. */
#define THREADS 1024

GLOBAL int charge_thread(u64 address, u64 id)
{
	struct task_struct *task = (void *)address;
	struct tiptoe_round *round = round_of_all();
	struct tiptoe_known *own;

	if (!round)
		return 0;
	own = known_of(task, round, id);
	if (own) {
		charge_task(own, task);
		now_in(own, id);
	}
	return 0;
}

/* Charges a process's threads, whose list is fixed during a move. Returns whether there are more than THREADS. */
INLINE int charge_threads(struct task_struct *leader, u64 id)
{
	u64 head = (u64)leader->signal + OFFSET(struct signal_struct, thread_head);
	u64 node = (u64)READ((struct list_head *)head, next);

	for (u32 count = 0; count < THREADS; count++) {
		if (!node || node == head)
			return 0;
		charge_thread(node - OFFSET(struct task_struct, thread_node), id);
		node = (u64)READ((struct list_head *)node, next);
	}
	return 1;
}

/* Charges a moved task's growth to the cgroup that it leaves. */
SEC("tp_btf/cgroup_attach_task")
int attached(u64 *args)
{
	struct cgroup *cgroup = (void *)args[0];
	struct task_struct *task = (void *)args[2];
	u32 is_all = args[3] & 1;
	struct tiptoe_round *round = round_of_all();
	u64 began = bpf_ktime_get_ns(), id = cgroup->kn->id, address = 0;

	if (!round || !is_unified(cgroup))
		return 0;
	/* Read as a number, because a global function takes no pointer to a task. */
	bpf_probe_read_kernel(&address, sizeof(address), args + 2);
	if (!is_all)
		charge_thread(address, id);
	else if (charge_threads(task, id))
		tell(MOVED, id, 0);
	note_run(round, began);
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
