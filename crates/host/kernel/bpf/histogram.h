/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Histograms of times, with the buckets of core/event.
 */
#pragma once

#include "kernel.h"

/* 8 buckets for each power of two up to 2^42 ns. */
enum { BUCKETS = 336 };

/* Returns a time's bucket. */
INLINE u32 bucket_of(u64 ns)
{
	static const u64 thresholds[8] = {
		0x8b95c1e3ea8bd6e6, 0x9837f0518db8a96f, 0xa5fed6a9b15138ea, 0xb504f333f9de6484,
		0xc5672a115506dadd, 0xd744fccad69d6af4, 0xeac0c6e7dd24392e, ~0ull,
	};
	u64 mantissa = ns;
	u32 exponent = 63;
	u32 eighth, bucket;

#pragma unroll
	for (u32 step = 32; step; step /= 2) {
		if (!(mantissa >> (64 - step))) {
			mantissa <<= step;
			exponent -= step;
		}
	}
	if (ns <= 1)
		return 0;
	eighth = mantissa >> 60 & 7;
	bucket = 8 * exponent + eighth + (mantissa > thresholds[eighth]) - (mantissa << 1 == 0);
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

INLINE void raise(u64 *most, u64 value)
{
	u64 seen = *(volatile u64 *)most;

	for (int tries = 0; tries < 4; tries++) {
		u64 found;

		if (value <= seen)
			return;
		found = __sync_val_compare_and_swap(most, seen, value);
		if (found == seen)
			return;
		seen = found;
	}
}
