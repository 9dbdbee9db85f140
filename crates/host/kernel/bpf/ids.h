/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Process and thread ids in tiptoe's PID namespace, which differ from the kernel's in a container. */
#pragma once

#include "kernel.h"

/* tiptoe's PID namespace, or 0 if it is the initial one; written before loading. */
const volatile u64 namespace_dev = 0;
const volatile u64 namespace_ino = 0;

/* Returns process id << 32 | thread id in tiptoe's namespace; 0 for a thread of another namespace. */
INLINE u64 current_ids(void)
{
	struct ns_ids ids;

	if (!namespace_ino)
		return bpf_get_current_pid_tgid();
	if (bpf_get_ns_current_pid_tgid(namespace_dev, namespace_ino, &ids, sizeof(ids)))
		return 0;
	return (u64)ids.tgid << 32 | ids.tid;
}
