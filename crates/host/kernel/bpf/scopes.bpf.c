// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Charges scopes (labelled parts of threads' work) for events, and for the threads' time off the CPU.
 *
 * A scope within its outer scopes is a *node* (core/wire/src/scopes.rs). tiptoe's library in the process (the agent)
 * stores a thread's node in the thread's counters (*slab*), to which a descriptor at the thread pointer leads. The
 * agent measures times in scopes; these programs measure only how long a thread did not run.
 *
 * The process's data must not be trusted. An unreadable node counts as 0 (no scope), one above the last as the last.
 */
#include "ids.h"
#include "scopes_layout.h"

/* A task's flag: it will not be scheduled in again. */
#define EXITING 4

/* The most threads off the CPU at once. */
#define THREADS 65536

/* Settings, written before loading. */
const volatile u32 process = 0;
/* Bytes from the thread pointer to the address of the thread's descriptor. */
const volatile s64 thread_offset = 0;
/* The node's offset in a slab, in bytes. */
const volatile u32 node_offset = 0;

/* The process's id in the initial PID namespace, once a thread was seen. */
volatile u32 process_here;

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, NODES);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_scope_sums);
} sums SEC(".maps");

/* The runs for the process, and their time. */
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

/* When a thread was scheduled out, and in which node. */
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

/* The agent's thread has its creator's thread pointer, but is not in that thread's scopes. */
INLINE int is_agent(struct task_struct *task)
{
	char comm[16];

	bpf_probe_read_kernel(comm, sizeof(comm), task->comm);
	return *(u64 *)comm == 0x612d656f74706974ull; /* "tiptoe-a" */
}

/* Returns the current thread's node. */
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

/* An exited thread is no longer off the CPU. */
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

/*
 * A program for threads' events, and one for a tracepoint, where a result of 0 would hide the event from other users.
 */
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
