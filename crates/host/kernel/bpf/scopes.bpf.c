// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Charges what happens to a process's threads to the scopes that they are in.
 *
 * Which one that is the agent keeps in the thread's own memory: its thread pointer leads to a descriptor, that to the
 * thread's slab, and that holds the node. So nothing is told when a thread changes to another scope, and an event is
 * charged where it happens. Times are the agent's; here it is counted how long a thread was not running meanwhile.
 *
 * Whatever is read of the program is no more than what it claims: a node that cannot be is that of all others.
 */
#include "ids.h"
#include "scopes_layout.h"

/* Of a task: it ends, and does not come again. */
#define EXITING 4

/* Threads that are away at one time. */
#define THREADS 65536

/* Settings, written before the programs are loaded. */
const volatile u32 process = 0;
/* From a thread's pointer to the word that leads to its descriptor, in bytes. */
const volatile s64 thread_offset = 0;
/* From a slab's beginning to its node, in bytes. */
const volatile u32 node_offset = 0;

/* The process's id as the kernel has it, once one of its threads was seen. */
volatile u32 process_here;

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, NODES);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_scope_sums);
} sums SEC(".maps");

/* What we take of the process: so often, so long. */
struct own {
	u64 runs;
	u64 run_ns;
};

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct own);
} cpus SEC(".maps");

INLINE void ran_since(u64 began)
{
	u32 zero = 0;
	struct own *own = bpf_map_lookup_elem(&cpus, &zero);

	if (own) {
		own->runs += 1;
		own->run_ns += bpf_ktime_get_ns() - began;
	}
}

/* Since when a thread does not run, and in which node. */
struct away {
	u64 since;
	u64 node;
};

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, THREADS);
	TYPE(key, u32);
	TYPE(value, struct away);
} away SEC(".maps");

/* The agent's thread has the pointer of the one that made it, whose scopes are none of its. */
INLINE int is_agent(struct task_struct *task)
{
	char comm[16];

	bpf_probe_read_kernel(comm, sizeof(comm), task->comm);
	return *(u64 *)comm == 0x612d656f74706974ull; /* "tiptoe-a" */
}

/* The node that the current thread is in. */
INLINE u32 current_node(struct task_struct *task)
{
	u64 at = task->thread.fsbase + thread_offset, slab = 0, node = 0;

	if (bpf_probe_read_user(&at, sizeof(at), (void *)at) || !at)
		return 0;
	if (bpf_probe_read_user(&slab, sizeof(slab), (void *)at) || !slab)
		return 0;
	if (bpf_probe_read_user(&node, sizeof(node), (void *)(slab + node_offset)))
		return 0;
	return node < NODES ? node : NODES - 1;
}

INLINE struct tiptoe_scope_sums *sums_of(u32 node)
{
	return bpf_map_lookup_elem(&sums, &node);
}

SEC("tp_btf/sched_switch")
int switched(u64 *ctx)
{
	struct task_struct *leaves = (void *)ctx[1], *comes = (void *)ctx[2];
	u64 now = 0;

	if (process_here && comes->tgid == (s32)process_here) {
		u32 tid = comes->pid;
		struct away *was = bpf_map_lookup_elem(&away, &tid);

		if (was && was->since) {
			struct tiptoe_scope_sums *sum = sums_of((u32)was->node);

			now = bpf_ktime_get_ns();
			if (sum)
				sum->away_ns += now - was->since;
			was->since = 0;
		}
	}
	if (process_here ? leaves->tgid == (s32)process_here : current_ids() >> 32 == process) {
		struct away is = {};
		u32 tid = leaves->pid;

		if (!process_here)
			process_here = leaves->tgid;
		if (!now)
			now = bpf_ktime_get_ns();
		is.since = now;
		if (!(leaves->flags & EXITING) && !is_agent(leaves)) {
			is.node = current_node(leaves);
			bpf_map_update_elem(&away, &tid, &is, ANY);
		}
	}
	if (now)
		ran_since(now);
	return 0;
}

/* Of a thread that is no more nothing is away. */
SEC("tp_btf/sched_process_exit")
int exited(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 tid = task->pid;

	if (process_here && task->tgid == (s32)process_here)
		bpf_map_delete_elem(&away, &tid);
	return 0;
}

INLINE void happened(u32 number)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct tiptoe_scope_sums *sum;
	u64 began;

	if (current_ids() >> 32 != process || is_agent(task))
		return;
	began = bpf_ktime_get_ns();
	sum = sums_of(current_node(task));
	if (sum)
		sum->events[number] += 1;
	ran_since(began);
}

/* An event of threads, and a tracepoint, which is everybody's: a program there returns 1, as others want it, too. */
#define EVENT(number)                                                                                   \
	SEC("perf_event")                                                                               \
	int event_##number(void *ctx)                                                                   \
	{                                                                                               \
		(void)ctx;                                                                              \
		happened(number);                                                                       \
		return 0;                                                                               \
	}                                                                                               \
	SEC("tracepoint")                                                                               \
	int passed_##number(void *ctx)                                                                  \
	{                                                                                               \
		(void)ctx;                                                                              \
		happened(number);                                                                       \
		return 1;                                                                               \
	}
EVENT(0)
EVENT(1)
EVENT(2)
EVENT(3)
EVENT(4)
EVENT(5)
EVENT(6)
EVENT(7)

char licence[] SEC("license") = "Dual MIT/GPL";
