/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Processes and threads by the ids that tiptoe knows them by, which in a container are not the kernel's own.
 */
#pragma once

#include "kernel.h"

/* tiptoe's pid namespace, where that is not the first; written before the programs are loaded. */
const volatile u64 namespace_dev = 0;
const volatile u64 namespace_ino = 0;

/* The thread's id, and above it the process's, as tiptoe knows them: 0 of those in other namespaces. */
INLINE u64 current_ids(void)
{
	struct ns_ids ids;

	if (!namespace_ino)
		return bpf_get_current_pid_tgid();
	if (bpf_get_ns_current_pid_tgid(namespace_dev, namespace_ino, &ids, sizeof(ids)))
		return 0;
	return (u64)ids.tgid << 32 | ids.tid;
}
