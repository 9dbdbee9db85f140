/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the program at breakpoints shares with tiptoe. `src/watchpoints/layout.rs` has the same in Rust.
 */
#pragma once

#include "kernel.h"

/* So many values are told apart in a row, and so many callers kept. */
enum { VALUES = 8, CALLERS = 16, STACK_WORDS = 128, REGISTERS = 16 };

/* A variable that is watched; it is found by its address. */
struct tiptoe_variable {
	u32 index;
	u32 len;
	u32 is_signed;
	/* What is watched is run: it has no value. */
	u32 is_code;
	/* Which of the events it has. */
	u32 slot;
};

/*
 * What is known of the value that a variable holds: nothing while stores are missed, as events are switched on or moved;
 * nothing until the next hit; or that it is the last one's.
 */
enum known { GAP, FIRST, FOLLOWED };

/* Which hits are one row. */
struct tiptoe_watch_key {
	/* The user's instruction behind the one that hit. */
	u64 ip;
	/* A hash of the callers. */
	u64 stack;
	u32 variable;
	/* 0 where threads are not told apart. */
	u32 tid;
	/* A system call wrote there. */
	u64 in_kernel;
	u8 comm[16];
};

struct tiptoe_value {
	/* FREE, TAKEN or READY: then the value is. */
	u64 state;
	u64 value;
	u64 count;
};

enum { FREE, TAKEN, READY };

/* What is known of a row's hits. */
struct tiptoe_watch_row {
	u64 count;
	/* The value was another one than before. */
	u64 changed;
	/* The value was read from memory, behind the store. */
	u64 read_behind;
	/* The value before is not known. */
	u64 old_unknown;
	u64 first_ns;
	u64 last_ns;
	u64 first_tid;
	/* Not all of one thread. */
	u64 several_threads;
	u64 last_old;
	u64 last_new;
	/* The last one's value before is not known. */
	u64 is_last_unknown;
	/* Values that found no room. */
	u64 other_values;
	struct tiptoe_value values[VALUES];
	u64 callers[CALLERS];
	u64 depth;
	/* The walk ended at code of which nothing was known yet. */
	u64 is_partial;
	/* Of the first: its registers in the order of machine code, flags, and some of its stack. */
	u64 registers[REGISTERS];
	u64 flags;
	u64 stack_words;
	u64 stack[STACK_WORDS];
};

/* A hit by itself. */
struct tiptoe_access {
	u64 time_ns;
	u64 tid;
	u64 old;
	u64 new;
	/* The value was read from memory, behind the store. */
	u64 is_read_behind;
	/* The value before is not known. */
	u64 is_old_unknown;
	struct tiptoe_watch_key key;
};

/* Where an instruction's value is. */
enum source { UNKNOWN, REGISTER, IMMEDIATE, EXCHANGED, COMPARED, ADDED };

/* No register. */
#define NONE REGISTERS

/* An instruction that stores, by the address behind it. */
struct tiptoe_store {
	u32 source;
	/* By its number in machine code; and where in it the value begins. */
	u32 reg;
	u32 shift;
	/* Bytes that it writes. */
	u32 width;
	/* Where: base + index * scale + displacement. */
	u32 base;
	u32 index;
	u32 scale;
	/* The address is not known: it goes by a segment. */
	u32 is_elsewhere;
	u64 displacement;
	u64 immediate;
};

/* Why something was not counted, or only in part. */
enum drop {
	NO_ROOM_FOR_ROW,
	NO_VALUE,
	NESTED,
	NO_ROOM_FOR_LINE,
	DROPS,
};

/* A condition: LEFT OP RIGHT. */
enum operand { OLD, NEW, CONSTANT };
enum operator { EQUAL, DIFFERENT, LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, HAS_BITS };
