/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The slot of each cgroup (the index of its counts), and the slot's sums. At the start tiptoe gives each cgroup a
 * slot; a later cgroup gets one at its first charge.
 */
#pragma once

#include "cgroups_layout.h"

/* The number of slots, until tiptoe sets the real one. */
#define SLOTS 64

/* The lines of all slots of one CPU, then those of the next CPU. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, SLOTS);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_line);
} lines SEC(".maps");

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, SLOTS);
	TYPE(key, u64);
	TYPE(value, u32);
} slot_of SEC(".maps");

/* The id of the cgroup that has each slot. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, SLOTS);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, u64);
} owners SEC(".maps");

/* Free slots. */
struct {
	UINT(type, MAP_QUEUE);
	UINT(max_entries, SLOTS);
	UINT(value_size, 4);
} free_slots SEC(".maps");

/* Returns a cgroup's slot, a new one if it has none. */
GLOBAL u32 find_slot(u64 id)
{
	u32 slot = OTHERS, *found = bpf_map_lookup_elem(&slot_of, &id);
	u64 nobody = 0;

	if (!found) {
		if (bpf_map_pop_elem(&free_slots, &slot))
			return OTHERS;
		bpf_map_update_elem(&owners, &slot, &id, ANY);
		if (bpf_map_update_elem(&slot_of, &id, &slot, NO_EXIST)) {
			/* Another CPU gave the cgroup a slot first. */
			bpf_map_update_elem(&owners, &slot, &nobody, ANY);
			bpf_map_push_elem(&free_slots, &slot, ANY);
		}
		found = bpf_map_lookup_elem(&slot_of, &id);
	}
	return found ? *found : OTHERS;
}

INLINE u32 slot_for(u64 id)
{
	return id ? find_slot(id) : IDLE;
}

/* Returns a task's cgroup; 0 for idle tasks, whose work is not the root cgroup's. */
INLINE u64 cgroup_of(struct task_struct *task)
{
	return task->pid ? task->cgroups->dfl_cgrp->kn->id : 0;
}
