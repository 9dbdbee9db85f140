/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What happens to cgroups, and is told to tiptoe: which are made and removed, and where tasks were moved that may run.
 */
#pragma once

#include "cgroups_layout.h"

struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 1 << 18);
} news SEC(".maps");

/* A piece of news is put together here: it is larger than our stack. */
struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct tiptoe_news);
} scratch SEC(".maps");

/* News that had no room. */
volatile u32 untold;

/* So often was a task moved, or a cgroup made. */
volatile u32 moves;

/* The hierarchy of version 2: that of the cgroup which each task has there. */
INLINE int is_unified(struct cgroup *cgroup)
{
	return cgroup->root == bpf_get_current_task_btf()->cgroups->dfl_cgrp->root;
}

INLINE void tell(u64 kind, u64 id, const char *path)
{
	u32 zero = 0;
	struct tiptoe_news *piece = bpf_map_lookup_elem(&scratch, &zero);
	long length = 0;

	if (!piece)
		return;
	piece->kind = kind;
	piece->id = id;
	if (path)
		length = bpf_probe_read_kernel_str(piece->path, sizeof(piece->path), path);
	if (length < 0 || length > (long)sizeof(piece->path))
		length = 0;
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
