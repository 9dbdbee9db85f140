/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Reports to tiptoe: cgroups made and removed, and moves of tasks that may be running. */
#pragma once

#include "cgroups_layout.h"

struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 1 << 18);
} news SEC(".maps");

/* Space for a report, larger than a program's stack. */
struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_news);
} scratch SEC(".maps");

/* How many reports found no room in the ring. */
volatile u32 untold;

/* How often a task was moved, or a cgroup made. */
volatile u32 moves;

/* Returns whether a cgroup is in version 2's hierarchy, that of each task's default cgroup. */
INLINE int is_unified(struct cgroup *cgroup)
{
	return cgroup->root == bpf_get_current_task_btf()->cgroups->dfl_cgrp->root;
}

INLINE void tell(u64 kind, u64 id, const char *path)
{
	u32 zero = 0;
	struct tiptoe_news *piece = bpf_map_lookup_elem(&scratch, &zero);
	u64 length = 0;

	if (!piece)
		return;
	piece->kind = kind;
	piece->id = id;
	if (path)
		length = bpf_probe_read_kernel_str(piece->path, sizeof(piece->path), path);
	/* Kept in one register, because the verifier before Linux 6.2 forgets the bounds of `length` in a sum. */
	KEEP(length);
	/* An error is negative, so as an unsigned number it is above the limit. */
	if (length > sizeof(piece->path))
		length = 0;
	KEEP(length);
	if (bpf_ringbuf_output(&news, piece, 16 + length, 0))
		untold += 1;
}

SEC("tp_btf/cgroup_mkdir")
int made(u64 *args)
{
	struct cgroup *cgroup = (void *)args[0];

	if (!is_unified(cgroup))
		return 0;
	moves += 1;
	tell(MADE, cgroup->kn->id, (const char *)args[1]);
	return 0;
}

SEC("tp_btf/cgroup_rmdir")
int gone(u64 *args)
{
	struct cgroup *cgroup = (void *)args[0];

	if (is_unified(cgroup))
		tell(GONE, cgroup->kn->id, 0);
	return 0;
}
