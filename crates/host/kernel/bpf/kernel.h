/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The kernel's interface: helpers by their fixed numbers, and fields at the running kernel's offsets
 * (CO-RE).
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline))
#define NO_INLINE static __attribute__((noinline))
/* A function that the verifier checks once, for any arguments. */
#define GLOBAL __attribute__((noinline))

/* Keeps a value in one register from here on, because the verifier tracks bounds by register. */
#define KEEP(value) asm volatile("" : "+r"(value))

/* Encode a map's type, sizes and flags in its BTF. */
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name

enum map_type {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERF_EVENT_ARRAY = 4,
	MAP_PERCPU_ARRAY = 6,
	MAP_STACK_TRACE = 7,
	MAP_LRU_HASH = 9,
	MAP_QUEUE = 22,
	MAP_RINGBUF = 27,
};

/* The map allocates on demand, so programs at a trap, which cannot allocate, must not add entries. */
#define NO_PREALLOC 1
/* User space may map the array. */
#define MMAPABLE (1 << 10)

/* Updates: always, or only if the key is missing. */
enum { ANY = 0, NO_EXIST = 1 };

/* bpf_get_stackid: treat stacks with equal hashes as equal. */
#define FAST_STACK_CMP (1 << 9)

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_get_current_comm)(void *to, u32 size) = (void *)16;
static long (*const bpf_get_stackid)(void *ctx, void *map, u64 flags) = (void *)27;
static u64 (*const bpf_get_current_task)(void) = (void *)35;
struct perf_value {
	u64 count;
	u64 enabled_ns;
	u64 running_ns;
};
static long (*const bpf_perf_event_read_value)(void *map, u64 index, struct perf_value *value,
					       u32 size) = (void *)55;
static u64 (*const bpf_get_current_cgroup_id)(void) = (void *)80;
static long (*const bpf_map_push_elem)(void *map, const void *value, u64 flags) = (void *)87;
static long (*const bpf_map_pop_elem)(void *map, void *value) = (void *)88;
static long (*const bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;

static long (*const bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;

struct ns_ids {
	u32 tid;
	u32 tgid;
};
static long (*const bpf_get_ns_current_pid_tgid)(u64 dev, u64 ino, struct ns_ids *ids, u32 size) = (void *)120;
static long (*const bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;

struct task_struct;
struct pt_regs;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
static struct pt_regs *(*const bpf_task_pt_regs)(struct task_struct *task) = (void *)175;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rw_semaphore {
};

struct mm_struct {
	struct rw_semaphore mmap_lock;
};

struct upid {
	s32 nr;
};

struct pid {
	u32 level;
	struct upid numbers[1];
};

struct kernfs_node {
	u64 id;
};

struct cgroup_root {
};

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct rq;

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
	u64 nr_migrations;
	struct cfs_rq *cfs_rq;
};

struct list_head {
	struct list_head *next;
};

struct signal_struct {
	struct list_head thread_head;
	s32 nr_threads;
};

struct thread_struct {
	u64 fsbase;
};

struct task_struct {
	struct thread_struct thread;
	struct signal_struct *signal;
	struct sched_entity se;
	struct css_set *cgroups;
	struct list_head thread_node;
	s32 exit_state;
	u64 start_time;
	u64 nvcsw;
	u64 nivcsw;
	u64 min_flt;
	u64 maj_flt;
	struct mm_struct *mm;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	s32 pid;
	s32 tgid;
	u32 flags;
	char comm[16];
};

struct rq {
	struct task_struct *idle;
	s32 cpu;
};

struct pt_regs {
	u64 bp;
	u64 ip;
	u64 sp;
};

struct bpf_iter__task {
	struct task_struct *task;
};

struct trace_event_raw_mmap_lock {
	struct mm_struct *mm;
	u8 write;
};

struct trace_event_raw_mmap_lock_acquire_returned {
	struct mm_struct *mm;
	u8 write;
	u8 success;
};

#pragma clang attribute pop

#define OFFSET(type, field) ((u64)__builtin_preserve_access_index(&((type *)0)->field))

/* A kernel structure's field; 0 if unreadable. */
#define READ(from, field)                                                                   \
	({                                                                                  \
		typeof((from)->field) value_ = 0;                                           \
		bpf_probe_read_kernel(&value_, sizeof(value_),                              \
				      __builtin_preserve_access_index(&(from)->field));     \
		value_;                                                                     \
	})
