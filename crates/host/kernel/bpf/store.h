/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A variable's values before and after an access, decoded from the storing
 * instruction, and whether the access meets the conditions.
 */
#pragma once

#include "watch_layout.h"

#define PLACES 16384
#define CONDITIONS 4

/* Settings, written before loading. */
const volatile u32 only_changed = 0;
/* The number of conditions; then each condition's left operand, operator, right operand and constant. */
const volatile u32 conditions = 0;
const volatile u64 condition[4 * CONDITIONS] = {};

/* Instructions that store, by the address after them. */
struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, PLACES);
	UINT(map_flags, NO_PREALLOC);
	TYPE(key, u64);
	TYPE(value, struct tiptoe_store);
} stores SEC(".maps");

/* A program's context at a perf event. */
struct hit {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax;
	u64 ip, cs, flags, sp, ss;
	u64 sample_period, addr;
};

/* An access's known values. */
struct access {
	u64 old;
	u64 new;
	/* What the instruction added: the old value is `new` minus `added`. */
	u64 added;
	int is_known;
	int has_old;
	/* The old value is unknown, because a store may have been missed. */
	int is_old_unknown;
};

#define ZERO_FLAG (1 << 6)

INLINE u64 cut(u64 value, u32 len)
{
	return len < 8 ? value & ((1ull << (8 * (len & 7))) - 1) : value;
}

/* Extends a value to 64 bits. */
INLINE u64 widen(u64 value, const struct tiptoe_variable *variable)
{
	u32 unused = 64 - 8 * (variable->len & 7);

	if (variable->len >= 8)
		return value;
	return variable->is_signed ? (u64)((s64)(value << (unused & 63)) >> (unused & 63)) : value;
}

INLINE int read_memory(u64 *value, u64 at, u32 len)
{
	*value = 0;
	switch (len) {
	case 1:
		return bpf_probe_read_user(value, 1, (void *)at);
	case 2:
		return bpf_probe_read_user(value, 2, (void *)at);
	case 4:
		return bpf_probe_read_user(value, 4, (void *)at);
	}
	return bpf_probe_read_user(value, 8, (void *)at);
}

/* Registers' values, by the registers' numbers in machine code. The last is 0, for no register. */
struct registers {
	u64 of[NONE + 1];
};

INLINE struct registers registers_of(const struct hit *hit)
{
	struct registers registers = { {
		hit->ax, hit->cx, hit->dx, hit->bx, hit->sp, hit->bp, hit->si, hit->di,
		hit->r8, hit->r9, hit->r10, hit->r11, hit->r12, hit->r13, hit->r14, hit->r15,
		0,
	} };

	return registers;
}

INLINE u64 reg(const struct registers *registers, u32 number)
{
	return number < NONE ? registers->of[number & 15] : 0;
}

/* Extracts the variable's part of a stored value. Returns whether the store covers the whole variable. */
INLINE int part(u64 *value, const struct registers *registers, const struct tiptoe_store *store, u64 at, u32 len)
{
	u64 from = reg(registers, store->base) + reg(registers, store->index) * store->scale +
		   store->displacement;
	u64 ahead = at - from;

	if (store->is_elsewhere)
		ahead = 0;
	if (ahead + len > store->width || ahead > 7 || (store->is_elsewhere && len != store->width))
		return 0;
	*value = cut(*value >> (8 * (ahead & 7)), len);
	return 1;
}

/* Decodes the values from the instruction. */
INLINE void decode(struct access *access, const struct hit *hit, u64 at, u32 len)
{
	struct registers registers = registers_of(hit);
	u64 ip = hit->ip;
	struct tiptoe_store *store = bpf_map_lookup_elem(&stores, &ip);
	u64 value, accumulator = hit->ax;

	if (!store)
		return;
	value = reg(&registers, store->reg) >> (store->shift & 63);
	switch (store->source) {
	case IMMEDIATE:
		value = store->immediate;
		/* fallthrough */
	case REGISTER:
		access->is_known = part(&value, &registers, store, at, len);
		access->new = value;
		break;
	case EXCHANGED:
		access->has_old = part(&value, &registers, store, at, len);
		access->old = value;
		break;
	case ADDED:
		access->added = store->immediate;
		break;
	case COMPARED:
		access->has_old = part(&accumulator, &registers, store, at, len);
		access->old = accumulator;
		/* Without the zero flag the compared values differed, so the value is unchanged. */
		if (hit->flags & ZERO_FLAG) {
			access->is_known = part(&value, &registers, store, at, len);
			access->new = value;
		} else {
			access->is_known = access->has_old;
			access->new = accumulator;
		}
		break;
	}
}

INLINE int holds(u64 operator, u64 left, u64 right, int is_signed)
{
	int less = is_signed ? (s64)left < (s64)right : left < right;

	switch (operator) {
	case EQUAL:
		return left == right;
	case DIFFERENT:
		return left != right;
	case LESS:
		return less;
	case LESS_OR_EQUAL:
		return less || left == right;
	case GREATER:
		return !less && left != right;
	case GREATER_OR_EQUAL:
		return !less;
	}
	return (left & right) != 0;
}

INLINE int is_wanted(const struct access *access, const struct tiptoe_variable *variable)
{
	u64 old = widen(access->old, variable), new = widen(access->new, variable);

	if (only_changed && old == new && !access->is_old_unknown)
		return 0;
	for (u32 i = 0; i < CONDITIONS; i++) {
		u64 left, right;

		if (i >= conditions)
			break;
		left = condition[4 * i] == OLD ? old : new;
		right = condition[4 * i + 2] == OLD ? old : new;
		if (condition[4 * i + 2] == CONSTANT)
			right = condition[4 * i + 3];
		/* An unknown old value counts as meeting the condition. */
		if (access->is_old_unknown && (condition[4 * i] == OLD || condition[4 * i + 2] == OLD))
			continue;
		if (!holds(condition[4 * i + 1], left, right, variable->is_signed))
			return 0;
	}
	return 1;
}
