// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Runs in a thread that accessed a watched variable (a *hit*). Counts accesses by instruction and callers, with the
 * values before and after.
 *
 * The processor traps after an access, when another thread may already have stored there (a race). So the value is
 * computed from the storing instruction, if `stores` has this instruction. tiptoe decodes an instruction for
 * `stores` after the instruction's first hit.
 *
 * `rules` lead from a code address to the caller's. tiptoe fills them, from unwind information, for the addresses
 * that walks reach. A walk ends at an address without a rule, and sets `is_partial`.
 *
 * All CPUs share an allowance of hits in a window of time. When the allowance is used up, the program returns 1.
 * That stops the event on this CPU (PERF_EVENT_IOC_REFRESH) until tiptoe refreshes the event.
 */
#include "ids.h"
#include "store.h"
#include "watch_layout.h"

#define ROWS 4096
#define VARIABLES 64

struct own {
	u64 foreign;
	/* Space for a new row, larger than a program's stack. */
	struct tiptoe_watch_row row;
};

#include "run.h"

/* Settings, written before loading. */
const volatile u32 process = 0;
const volatile u32 by_thread = 0;
const volatile u32 one_by_one = 0;

/* Set after exec, because another program is at these addresses then. */
volatile u32 has_execed;

/* Each variable's hits, and those that meet the conditions. */
struct counts {
	u64 hits;
	u64 wanted;
};

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, VARIABLES);
	TYPE(key, u64);
	TYPE(value, struct tiptoe_variable);
} variables SEC(".maps");

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, VARIABLES);
	TYPE(key, u32);
	TYPE(value, u64);
} last SEC(".maps");

/* One of `enum known` for each variable. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, VARIABLES);
	TYPE(key, u32);
	TYPE(value, u64);
} known SEC(".maps");

/* Each variable's hits that began. If this number changes while tiptoe reads memory, there was a race. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, VARIABLES);
	TYPE(key, u32);
	TYPE(value, u64);
} seen SEC(".maps");

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, VARIABLES);
	TYPE(key, u32);
	TYPE(value, struct counts);
} counted SEC(".maps");

/* How often each event stopped, on each CPU. */
struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, VARIABLES);
	TYPE(key, u32);
	TYPE(value, u64);
} rests SEC(".maps");

/*
 * The window's cells: hits on all CPUs; their limit, or 0 for none; whether counting has started; whether an event
 * has stopped and stores are missed; other processes' hits, limited alike; whether such hits stopped an event.
 */
enum { HITS, ALLOWED, IS_ON, IS_RESTING, STRANGERS, IS_STRANGE, WINDOW };
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, WINDOW);
	TYPE(key, u32);
	TYPE(value, u64);
} window SEC(".maps");

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, ROWS);
	TYPE(key, struct tiptoe_watch_key);
	TYPE(value, struct tiptoe_watch_row);
} rows SEC(".maps");

/* Single hits, if requested. */
struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 1 << 20);
} accesses SEC(".maps");

struct {
	UINT(type, MAP_HASH);
	UINT(max_entries, PLACES);
	UINT(map_flags, NO_PREALLOC);
	TYPE(key, u64);
	TYPE(value, u32);
} rules SEC(".maps");

/* A thread's position in a function, or its caller's. */
struct frame {
	u64 at;
	u64 sp;
	u64 bp;
};

enum step { CALLER, OUTERMOST, NOT_KNOWN };

/*
 * Steps to the caller by a rule of code/stack. A rule's bits: the base register (0-1); the CFA's distance above the
 * base (2-14) and the saved %rbp's distance below the CFA (15-25), in words.
 */
GLOBAL int step(struct frame *frame)
{
	u64 at, end, saved;
	u32 *found;
	u32 rule;

	if (!frame)
		return OUTERMOST;
	at = frame->at;
	found = bpf_map_lookup_elem(&rules, &at);
	if (!found)
		return NOT_KNOWN;
	rule = *found;
	if (!(rule & 2))
		return OUTERMOST;
	end = (rule & 1 ? frame->bp : frame->sp) + (rule >> 2 & 0x1fff) * 8;
	saved = (rule >> 15 & 0x7ff) * 8;
	if (end <= frame->sp || end - frame->sp > 1 << 16)
		return OUTERMOST;
	if (saved && saved <= end - frame->sp)
		bpf_probe_read_user(&frame->bp, 8, (void *)(end - saved));
	if (bpf_probe_read_user(&frame->at, 8, (void *)(end - 8)))
		return OUTERMOST;
	frame->sp = end;
	return CALLER;
}

/* Finds the callers, innermost first, and returns their hash. */
GLOBAL u64 walk(struct cpu *cpu, u64 at, u64 sp, u64 bp)
{
	struct frame frame = { at, sp, bp };
	u64 hash = 0, depth = 0;
	int next = CALLER;

	if (!cpu)
		return 0;
	for (int i = 0; i < CALLERS; i++) {
		next = step(&frame);
		if (next != CALLER)
			break;
		cpu->own.row.callers[i] = frame.at;
		depth = i + 1;
		hash = (hash ^ frame.at) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 32;
	}
	cpu->own.row.depth = depth;
	cpu->own.row.is_partial = next == NOT_KNOWN;
	return hash + cpu->own.row.is_partial;
}

INLINE void keep_registers(struct cpu *cpu, const struct hit *hit, u64 sp, u64 bp)
{
	struct registers registers = registers_of(hit);

	for (int i = 0; i < REGISTERS; i++)
		cpu->own.row.registers[i] = registers.of[i];
	cpu->own.row.registers[4] = sp;
	cpu->own.row.registers[5] = bp;
	cpu->own.row.flags = hit->flags;
}

/* Makes the row of a key, with the callers just found. */
NO_INLINE struct tiptoe_watch_row *new_row(struct tiptoe_watch_key *key)
{
	/* Looked up again, because a global function's argument must not be a map's key or value. */
	struct cpu *cpu = this_cpu();

	if (!cpu || !key)
		return 0;
	cpu->own.row.first_ns = cpu->entered_ns;
	cpu->own.row.first_tid = (u32)current_ids();
	cpu->own.row.stack_words = STACK_WORDS;
	if (bpf_probe_read_user(cpu->own.row.stack, 8 * STACK_WORDS, (void *)cpu->own.row.registers[4])) {
		cpu->own.row.stack_words = STACK_WORDS / 8;
		if (bpf_probe_read_user(cpu->own.row.stack, STACK_WORDS, (void *)cpu->own.row.registers[4]))
			cpu->own.row.stack_words = 0;
	}
	/* If another CPU was faster, the other CPU's row stays. */
	bpf_map_update_elem(&rows, key, &cpu->own.row, NO_EXIST);
	return bpf_map_lookup_elem(&rows, key);
}

GLOBAL int note_value(struct tiptoe_watch_row *row, u64 value)
{
	if (!row)
		return 0;
	for (int i = 0; i < VALUES; i++) {
		struct tiptoe_value *slot = &row->values[i];
		u64 state = *(volatile u64 *)&slot->state;

		if (state == FREE) {
			state = __sync_val_compare_and_swap(&slot->state, FREE, TAKEN);
			if (state == FREE) {
				*(volatile u64 *)&slot->value = value;
				/* An exchange, so that no CPU sees the state before the value. */
				__sync_lock_test_and_set(&slot->state, READY);
				state = READY;
			}
		}
		if (state == READY && *(volatile u64 *)&slot->value == value) {
			__sync_fetch_and_add(&slot->count, 1);
			return 0;
		}
	}
	__sync_fetch_and_add(&row->other_values, 1);
	return 0;
}

GLOBAL int count(struct cpu *cpu, struct tiptoe_watch_key *key, const struct access *access, u32 tid, u32 is_code)
{
	struct tiptoe_watch_row *row;
	struct tiptoe_watch_key own;

	if (!cpu || !key || !access)
		return 0;
	/* Copied to the stack, because the verifier before Linux 6.2 takes no global function's argument as a key. */
	own = *key;
	row = bpf_map_lookup_elem(&rows, &own);
	if (!row)
		row = new_row(&own);
	if (!row) {
		drop(NO_ROOM_FOR_ROW);
		return 0;
	}
	__sync_fetch_and_add(&row->count, 1);
	if (access->is_old_unknown)
		__sync_fetch_and_add(&row->old_unknown, 1);
	else if (access->old != access->new)
		__sync_fetch_and_add(&row->changed, 1);
	if (!access->is_known)
		__sync_fetch_and_add(&row->read_behind, 1);
	if (row->first_tid != tid)
		row->several_threads = 1;
	row->last_ns = cpu->entered_ns;
	row->last_old = access->old;
	row->last_new = access->new;
	row->is_last_unknown = access->is_old_unknown;
	if (!is_code)
		note_value(row, access->new);
	return 0;
}

/* Reports a single hit. */
NO_INLINE void tell(struct cpu *cpu, struct tiptoe_watch_key *key, struct access *access)
{
	struct tiptoe_access line = {};

	if (!cpu || !key || !access)
		return;
	line.time_ns = cpu->entered_ns;
	line.tid = (u32)current_ids();
	line.old = access->old;
	line.new = access->new;
	line.is_read_behind = !access->is_known;
	line.is_old_unknown = access->is_old_unknown;
	line.key = *key;
	if (bpf_ringbuf_output(&accesses, &line, sizeof(line), 0))
		drop(NO_ROOM_FOR_LINE);
}

/*
 * Makes `new` the next hit's old value. Returns whether `previous` is this hit's old value. The state must be read
 * before the value, because a hit on another CPU stores the value before it sets FOLLOWED.
 */
GLOBAL int follow(u32 index, u64 new, u64 *previous)
{
	u32 cell = IS_RESTING;
	u64 *resting = bpf_map_lookup_elem(&window, &cell);
	u64 *hits = bpf_map_lookup_elem(&seen, &index);
	u64 *state = bpf_map_lookup_elem(&known, &index);
	u64 *value = bpf_map_lookup_elem(&last, &index);
	u64 was;

	if (!previous || !resting || !hits || !state || !value)
		return 0;
	__sync_fetch_and_add(hits, 1);
	was = *(volatile u64 *)resting ? GAP : *(volatile u64 *)state;
	*previous = __sync_lock_test_and_set(value, new);
	if (was == FIRST)
		__sync_val_compare_and_swap(state, FIRST, FOLLOWED);
	return was == FOLLOWED;
}

INLINE void look(struct cpu *cpu, const struct hit *hit, const struct tiptoe_variable *variable, u32 tid)
{
	u64 at = hit->addr;
	struct tiptoe_watch_key key = { .ip = hit->ip, .tid = by_thread ? tid : 0 };
	struct access access = {};
	u64 sp = hit->sp, bp = hit->bp;
	struct counts *counts;
	u64 previous = 0, *on;
	u32 is_followed;
	u32 index = variable->index, cell = IS_ON;

	key.variable = index;
	key.in_kernel = !(hit->cs & 3);
	counts = bpf_map_lookup_elem(&counted, &index);
	on = bpf_map_lookup_elem(&window, &cell);
	if (!counts || !on)
		return;
	if (key.in_kernel) {
		struct pt_regs *user = bpf_task_pt_regs(bpf_get_current_task_btf());

		key.ip = user->ip;
		sp = user->sp;
		bp = user->bp;
	} else if (!variable->is_code) {
		decode(&access, hit, at, variable->len);
	}
	if (variable->is_code)
		access.is_known = 1;
	else if (!access.is_known && read_memory(&access.new, at, variable->len))
		drop(NO_VALUE);
	is_followed = follow(index, access.new, &previous);
	if (!*on)
		return;
	counts->hits += 1;
	if (access.added) {
		access.old = cut(access.new - access.added, variable->len);
	} else if (!access.has_old) {
		access.old = previous;
		access.is_old_unknown = (is_followed | variable->is_code) ^ 1;
	}
	if (!is_wanted(&access, variable))
		return;
	counts->wanted += 1;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	key.stack = walk(cpu, key.ip, sp, bp);
	keep_registers(cpu, hit, sp, bp);
	count(cpu, &key, &access, tid, variable->is_code);
	if (one_by_one)
		tell(cpu, &key, &access);
}

/* Returns whether this hit uses up the window's allowance, and so must stop its event. */
INLINE int is_last(u32 slot, u32 counter)
{
	u32 first = counter, second = ALLOWED, third = IS_RESTING, fourth = IS_STRANGE;
	u64 *hits = bpf_map_lookup_elem(&window, &first);
	u64 *allowed = bpf_map_lookup_elem(&window, &second);
	u64 *resting = bpf_map_lookup_elem(&window, &third);
	u64 *strange = bpf_map_lookup_elem(&window, &fourth);
	u64 *rested = bpf_map_lookup_elem(&rests, &slot);

	if (!hits || !allowed || !resting || !strange || !rested || !*allowed)
		return 0;
	if (__sync_fetch_and_add(hits, 1) + 1 < *allowed)
		return 0;
	*rested += 1;
	if (counter == STRANGERS)
		*strange = 1;
	/* Set after `rests`, because tiptoe clears this flag and then reads `rests`. */
	__sync_lock_test_and_set(resting, 1);
	return 1;
}

/*
 * Returns whether the task is a thread of the process, or its vfork child
 * before exec, which shares the process's memory. A helper reads the fields,
 * because with typed pointers the verifier would take twice as long.
 */
INLINE int is_ours(u64 ids)
{
	struct task_struct *task, *parent;

	if (ids >> 32 == process)
		return 1;
	if (namespace_ino)
		return 0;
	task = (void *)bpf_get_current_task();
	parent = READ(task, real_parent);
	return READ(parent, tgid) == (s32)process && READ(parent, mm) == READ(task, mm);
}

SEC("perf_event")
int accessed(struct hit *hit)
{
	u64 ids = current_ids();
	u64 at = hit->addr;
	struct tiptoe_variable *variable = bpf_map_lookup_elem(&variables, &at);
	struct cpu *cpu = enter();
	u32 counter = is_ours(ids) ? HITS : STRANGERS;

	if (cpu) {
		if (counter == STRANGERS)
			cpu->own.foreign += 1;
		else if (variable && !has_execed)
			look(cpu, hit, variable, ids);
		leave(cpu);
	}
	return variable && is_last(variable->slot, counter);
}

SEC("raw_tracepoint/sched_process_exec")
int program_exec(void)
{
	if (current_ids() >> 32 == process)
		has_execed = 1;
	return 0;
}

char licence[] SEC("license") = "Dual MIT/GPL";
