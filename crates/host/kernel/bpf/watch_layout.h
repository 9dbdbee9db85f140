/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Data shared by tiptoe and its program at breakpoints; in Rust: `src/watchpoints/watch_layout.rs`. */
#pragma once

#include "kernel.h"

/* The most distinct values, callers, words of stack and registers in a row (sums by key). */
enum { VALUES = 8, CALLERS = 16, STACK_WORDS = 128, REGISTERS = 16 };

/* A variable; the map's key is its address. */
struct tiptoe_variable {
	u32 index;
	u32 len;
	u32 is_signed;
	/* Set for watched code, which has no value. */
	u32 is_code;
	/* The index of the variable's perf event. */
	u32 slot;
};
_Static_assert(sizeof(struct tiptoe_variable) == 20, "as in Rust");

/*
 * Whether a variable's last value is known. GAP: no, because stores are missed while events are disabled or moved.
 * FIRST: not until the next hit. FOLLOWED: yes, from the last hit.
 */
enum known { GAP, FIRST, FOLLOWED };

/* Which hits share a row. */
struct tiptoe_watch_key {
	/* The user-space address after the instruction that hit. */
	u64 ip;
	/* A hash of the callers. */
	u64 stack;
	u32 variable;
	/* 0 if not grouped by thread. */
	u32 tid;
	/* A system call made the access. */
	u64 in_kernel;
	u8 comm[16];
};
_Static_assert(sizeof(struct tiptoe_watch_key) == 48, "as in Rust");

struct tiptoe_value {
	/* FREE, TAKEN or READY; the value is valid in READY only. */
	u64 state;
	u64 value;
	u64 count;
};
_Static_assert(sizeof(struct tiptoe_value) == 24, "as in Rust");

enum { FREE, TAKEN, READY };

struct tiptoe_watch_row {
	u64 count;
	/* Hits that changed the value. */
	u64 changed;
	/* Hits whose value was read from memory. */
	u64 read_behind;
	u64 old_unknown;
	u64 first_ns;
	u64 last_ns;
	u64 first_tid;
	u64 several_threads;
	u64 last_old;
	u64 last_new;
	u64 is_last_unknown;
	/* Hits whose value found no room. */
	u64 other_values;
	struct tiptoe_value values[VALUES];
	u64 callers[CALLERS];
	u64 depth;
	/* The walk ended at code without an unwind rule. */
	u64 is_partial;
	/* The first hit: registers in machine order, flags, and part of the thread's stack. */
	u64 registers[REGISTERS];
	u64 flags;
	u64 stack_words;
	u64 stack[STACK_WORDS];
};
_Static_assert(sizeof(struct tiptoe_watch_row) == 1600, "as in Rust");

/* A single hit. */
struct tiptoe_access {
	u64 time_ns;
	u64 tid;
	u64 old;
	u64 new;
	/* The value was read from memory. */
	u64 is_read_behind;
	u64 is_old_unknown;
	struct tiptoe_watch_key key;
};
_Static_assert(sizeof(struct tiptoe_access) == 96, "as in Rust");

/* Where a stored value comes from. */
enum source { UNKNOWN, REGISTER, IMMEDIATE, EXCHANGED, COMPARED, ADDED };

#define NONE REGISTERS

/* An instruction that stores, by the address after it. */
struct tiptoe_store {
	u32 source;
	/* The register's number in machine code, and the bit at which the value begins. */
	u32 reg;
	u32 shift;
	/* The number of stored bytes. */
	u32 width;
	/* The address: base + index * scale + displacement. */
	u32 base;
	u32 index;
	u32 scale;
	/* The address is unknown, because the instruction adds a segment's base. */
	u32 is_elsewhere;
	u64 displacement;
	u64 immediate;
};
_Static_assert(sizeof(struct tiptoe_store) == 48, "as in Rust");

/* Why something was not counted, or only in part. */
enum drop {
	NO_ROOM_FOR_ROW,
	NO_VALUE,
	NESTED,
	NO_ROOM_FOR_LINE,
	DROPS,
};

enum operand { OLD, NEW, CONSTANT };
enum operator { EQUAL, DIFFERENT, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, HAS_BITS };
