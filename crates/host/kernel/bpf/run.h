/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A BPF program's run: its time, and what it drops (does not count). The including file must define DROPS, the
 * number of reasons, and `struct own`, its state per CPU.
 */
#pragma once

#include "kernel.h"

struct cpu {
	u64 busy;
	/* Runs for the wanted processes, and their time. */
	u64 runs;
	u64 run_ns;
	u64 entered_ns;
	struct own own;
};

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct cpu);
} cpus SEC(".maps");

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, DROPS);
	TYPE(key, u32);
	TYPE(value, u64);
} drops SEC(".maps");

INLINE void drop(u32 reason)
{
	u64 *count = bpf_map_lookup_elem(&drops, &reason);

	if (count)
		*count += 1;
}

INLINE struct cpu *this_cpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

/* Begins a run. `busy` prevents a nested run, which an interrupt or a map's contended lock would start. */
INLINE struct cpu *enter(void)
{
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	if (cpu->busy) {
		drop(NESTED);
		return 0;
	}
	cpu->busy = 1;
	asm volatile("" ::: "memory");
	cpu->entered_ns = bpf_ktime_get_ns();
	return cpu;
}

INLINE void leave(struct cpu *cpu)
{
	cpu->runs += 1;
	cpu->run_ns += bpf_ktime_get_ns() - cpu->entered_ns;
	asm volatile("" ::: "memory");
	cpu->busy = 0;
}
