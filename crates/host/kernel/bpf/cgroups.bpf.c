// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Charges each CPU's work to the cgroup whose task the CPU runs.
 *
 * At a switch, `switched` charges the growth of the previous task's fields (run time, faults).
 * Events are read only if the cgroup changes. The events' growth is charged to the cgroup
 * *recorded* at the previous change, because the task may have moved since.
 *
 * Charges are in a flat array, with a line for each CPU and *slot*,
 * a cgroup's index.
 *
 * The kernel *hides* some switches (runs no program at them). So `switched` keeps each task's
 * last fields, which grow only while the task runs. Growth at the task's next seen switch is from
 * a hidden run, and is charged then. `switched` also keeps the task's slot, because a lookup
 * misses the cache among a thousand cgroups. A kept slot is valid until a task is moved or a
 * cgroup made.
 *
 * `switched` runs with interrupts off. `flush` runs in an interrupt, or on tiptoe's own CPU,
 * where no task can preempt it. So the two never race. A program that can be interrupted sets
 * `busy` while it changes a CPU's state. `flush` fails if `busy` is set, and tiptoe repeats it.
 */
#include "cgroups_news.h"
#include "cgroups_slots.h"

/* The number of kept tasks. Tasks with the same index replace each other. */
#define TASKS 65536
/* One run in this many is timed. */
#define TIMED_EACH 128
/* The first timed run; earlier runs are slow. */
#define TIMED_AT 8

/* The system's root cgroup. */
#define ROOT 1

/* Settings, written before loading. */
const volatile u32 cpus = 1;
const volatile u32 slots = SLOTS;
const volatile u32 events = 0;
/* When tiptoe started, by CLOCK_MONOTONIC. The fields of later tasks began at 0. */
const volatile u64 began_ns = 0;

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_cpu);
} states SEC(".maps");

/* The events' counts of one line, then those of the next. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, SLOTS);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_counted);
} counted SEC(".maps");

/*
 * A map for each event, with an entry for each CPU. `last` has the values at the last reading, by event, then by
 * CPU.
 */
#define EACH_EVENT(DO)                                                                                  \
	DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14)  \
	DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27)      \
	DO(28) DO(29) DO(30) DO(31)
#define EVENT_MAP(number)                                                                               \
	struct {                                                                                        \
		UINT(type, MAP_PERF_EVENT_ARRAY);                                                       \
		UINT(max_entries, 0);                                                                   \
		UINT(key_size, 4);                                                                      \
		UINT(value_size, 4);                                                                    \
	} event_##number SEC(".maps");
EACH_EVENT(EVENT_MAP)

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct perf_value);
} last SEC(".maps");

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, TASKS);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_task);
} tasks SEC(".maps");

INLINE struct tiptoe_line *line_of(u32 cpu, u32 slot)
{
	u32 at = cpu * slots + slot;

	return bpf_map_lookup_elem(&lines, &at);
}

INLINE void charge_event(struct tiptoe_cpu *own, u32 cpu, u32 number, void *map)
{
	u32 from = number * cpus + cpu, to = (cpu * slots + own->slot) * events + number;
	struct perf_value value = {}, *before = bpf_map_lookup_elem(&last, &from);
	struct tiptoe_counted *sum = bpf_map_lookup_elem(&counted, &to);

	if (!before || !sum || bpf_perf_event_read_value(map, cpu, &value, sizeof(value))) {
		own->unread += 1;
		return;
	}
	sum->count += value.count - before->count;
	sum->enabled_ns += value.enabled_ns - before->enabled_ns;
	sum->running_ns += value.running_ns - before->running_ns;
	*before = value;
}

/* Charges the events' growth. */
INLINE void charge_events(struct tiptoe_cpu *own, u32 cpu)
{
#define CHARGE_EVENT(number)                                                                            \
	if (number < events)                                                                            \
		charge_event(own, cpu, number, &event_##number);
	EACH_EVENT(CHARGE_EVENT)
}

INLINE struct tiptoe_fields fields_of(struct task_struct *task)
{
	struct tiptoe_fields fields = {
		.runtime_ns = task->se.sum_exec_runtime,
		.minor_faults = task->min_flt,
		.major_faults = task->maj_flt,
	};

	return fields;
}

/* Charges the growth of a task's fields to a line. */
INLINE void charge(struct tiptoe_line *line, const struct tiptoe_fields *before, const struct tiptoe_fields *now)
{
	line->runtime_ns += now->runtime_ns - before->runtime_ns;
	line->minor_faults += now->minor_faults - before->minor_faults;
	line->major_faults += now->major_faults - before->major_faults;
}

/*
 * Returns the entry at a task's index, which another task may occupy; 0 for idle tasks.
 */
INLINE struct tiptoe_task *kept_of(struct task_struct *task)
{
	u32 at = task->pid & (TASKS - 1);

	return at ? bpf_map_lookup_elem(&tasks, &at) : 0;
}

/* Returns whether `before` can be earlier fields of the same task. */
INLINE int is_before(const struct tiptoe_fields *before, const struct tiptoe_fields *now)
{
	return before->runtime_ns <= now->runtime_ns && before->minor_faults <= now->minor_faults &&
	       before->major_faults <= now->major_faults;
}

INLINE u64 or_root(u64 id)
{
	return id ? id : ROOT;
}

/* OTHERS is never valid, because a slot may become free at any time. */
INLINE u32 moves_for(u32 slot)
{
	return slot == OTHERS ? 0 : moves + 1;
}

/*
 * Records the cgroup of a task that moved itself since it was scheduled
 * in. The record saves a lookup at the next switch to the task. If the
 * kernel hides that switch, only the record shows the cgroup.
 */
INLINE void keep_cgroup(struct tiptoe_task *kept, const struct tiptoe_cpu *own, struct task_struct *task)
{
	if (own->task != (u64)task || kept->set == own->set || own->set != (u64)task->cgroups)
		return;
	kept->set = own->set;
	kept->id = own->id;
	kept->slot = own->slot;
	kept->moves = moves_for(own->slot);
}

GLOBAL int charge_growth(struct tiptoe_cpu *own, const struct tiptoe_fields *before,
			 const struct tiptoe_fields *now, u64 id)
{
	struct tiptoe_line *line;

	if (!own || !now)
		return 0;
	own->unseen += 1;
	own->id = id;
	own->slot = slot_for(id);
	line = line_of(bpf_get_smp_processor_id(), own->slot);
	if (line && before && is_before(before, now))
		charge(line, before, now);
	else if (id)
		own->strangers += 1;
	return 0;
}

/*
 * If the kernel hid the switch to a task, charges the task's growth since its last seen switch.
 * The task's cgroup also gets all events since the last reading, because they cannot be split.
 */
INLINE void charge_unseen(struct tiptoe_cpu *own, struct tiptoe_task *kept, struct task_struct *task,
			  const struct tiptoe_fields *now, u64 id)
{
	struct tiptoe_fields none = {}, *before = 0;

	if (kept && kept->task == (u64)task)
		before = &kept->fields;
	else if (task->start_time > began_ns)
		before = &none;
	charge_growth(own, before, now, id);
	own->set = task->pid ? (u64)task->cgroups : 0;
}

SEC("tp_btf/sched_switch")
int switched(u64 *args)
{
	struct task_struct *task = (void *)args[1], *next = (void *)args[2];
	u32 cpu = bpf_get_smp_processor_id(), differs = 0, slot;
	struct tiptoe_cpu *own = bpf_map_lookup_elem(&states, &cpu);
	struct tiptoe_task *kept;
	struct tiptoe_fields now;
	struct tiptoe_line *line;
	u64 id, set, began = 0;

	if (!own)
		return 0;
	if ((own->runs[0] + own->runs[1]) % TIMED_EACH == TIMED_AT)
		began = bpf_ktime_get_ns();
	now = fields_of(task);
	kept = kept_of(task);
	if (own->task != (u64)task && own->task)
		charge_unseen(own, kept, task, &now, cgroup_of(task));
	line = line_of(cpu, own->slot);
	if (!line)
		return 0;
	if (own->task == (u64)task) {
		if (own->id)
			charge(line, &own->fields, &now);
		own->moved += (u64)task->cgroups != own->set && cgroup_of(task) != own->id;
	}
	if (kept) {
		keep_cgroup(kept, own, task);
		kept->task = (u64)task;
		kept->fields = now;
	}
	line->switches += 1;

	own->task = (u64)next;
	own->fields = fields_of(next);
	kept = kept_of(next);
	/* Tasks with one css_set have the same cgroups. Idle tasks get 0, because other tasks share their css_set. */
	set = next->pid ? (u64)next->cgroups : 0;
	if (set != own->set) {
		own->set = set;
		if (kept && kept->task == (u64)next && kept->set == set && kept->moves == moves + 1) {
			id = kept->id;
			slot = kept->slot;
		} else {
			id = cgroup_of(next);
			slot = slot_for(id);
			own->no_slot += slot == OTHERS;
			if (kept) {
				kept->set = set;
				kept->id = id;
				kept->slot = slot;
				kept->moves = moves_for(slot);
			}
		}
		if (id != own->id) {
			line->left += or_root(id) != or_root(own->id);
			charge_events(own, cpu);
			own->id = id;
			own->slot = slot;
			differs = 1;
		}
	}
	if (kept && kept->task != (u64)next) {
		kept->task = (u64)next;
		kept->fields = own->fields;
	} else if (kept && kept->fields.runtime_ns != own->fields.runtime_ns) {
		/* `next` ran after it was last scheduled out, so the kernel hid a switch. */
		line = line_of(cpu, own->slot);
		if (line && is_before(&kept->fields, &own->fields))
			charge(line, &kept->fields, &own->fields);
		kept->fields = own->fields;
	}

	own->runs[differs] += 1;
	if (began) {
		own->timed[differs] += 1;
		own->timed_ns[differs] += bpf_ktime_get_ns() - began;
	}
	return 0;
}

/* Charges the running task, while no switch is possible; to cgroup `id` if the switch to the task was hidden. */
INLINE void charge_running(struct tiptoe_cpu *own, u32 cpu, struct task_struct *task, u64 id)
{
	struct tiptoe_fields now = fields_of(task), before = own->fields;
	struct tiptoe_task *kept = kept_of(task);
	struct tiptoe_line *line = line_of(cpu, own->slot);

	if (line && own->id && own->task == (u64)task)
		charge(line, &before, &now);
	else if (own->task && own->task != (u64)task)
		charge_unseen(own, kept, task, &now, id);
	own->task = (u64)task;
	own->fields = now;
	if (kept) {
		if (kept->task != (u64)task)
			kept->moves = 0;
		kept->task = (u64)task;
		kept->fields = now;
	}
	charge_events(own, cpu);
	own->set = task->pid ? (u64)task->cgroups : 0;
	own->id = cgroup_of(task);
	own->slot = slot_for(own->id);
}

/* Charges what the CPU did up to now. Returns 1 if tiptoe must repeat the call. */
SEC("raw_tracepoint/flush")
int flush(void *none __attribute__((unused)))
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct tiptoe_cpu *own = bpf_map_lookup_elem(&states, &cpu);

	if (!own)
		return 0;
	if (own->busy)
		return 1;
	own->busy = 1;
	asm volatile("" ::: "memory");
	charge_running(own, cpu, task, cgroup_of(task));
	asm volatile("" ::: "memory");
	own->busy = 0;
	return 0;
}

/* Keeps the fields of existing tasks, in case the kernel hides their next switch. */
SEC("iter/task")
int seeded(struct bpf_iter__task *args)
{
	struct task_struct *task = args->task;
	struct tiptoe_task *kept;

	if (!task)
		return 0;
	kept = kept_of(task);
	if (kept && !kept->task) {
		kept->task = (u64)task;
		kept->fields = fields_of(task);
	}
	return 0;
}

/* Counts a migration in the line of the CPU that decides it, because a migrating task runs on no CPU. */
SEC("tp_btf/sched_migrate_task")
int migrated(u64 *args)
{
	struct task_struct *task = (void *)args[0];
	struct tiptoe_line *line = line_of(bpf_get_smp_processor_id(), slot_for(cgroup_of(task)));

	if (line)
		line->migrations += 1;
	return 0;
}

/*
 * When a task moves itself or its process, charges the cgroup that it leaves.
 * Other moved tasks may be running, so a report makes tiptoe flush all CPUs.
 */
SEC("tp_btf/cgroup_attach_task")
int attached(u64 *args)
{
	struct cgroup *cgroup = (void *)args[0];
	struct task_struct *task = (void *)args[2], *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id(), is_all = args[3] & 1;
	struct tiptoe_cpu *own = bpf_map_lookup_elem(&states, &cpu);
	int is_own = task == current || (is_all && current->group_leader == task);
	struct tiptoe_task *kept;
	u64 left;

	if (!own || !is_unified(cgroup))
		return 0;
	moves += 1;
	if (is_own) {
		own->busy = 1;
		asm volatile("" ::: "memory");
		/* If the switch to this task was hidden, the CPU's cgroup is the previous task's. */
		kept = kept_of(current);
		left = own->id;
		if (own->task != (u64)current && kept && kept->task == (u64)current && kept->id)
			left = kept->id;
		charge_running(own, cpu, current, left);
		asm volatile("" ::: "memory");
		own->busy = 0;
	}
	if (!is_own || (is_all && task->signal->nr_threads > 1))
		tell(MOVED, cgroup->kn->id, 0);
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
