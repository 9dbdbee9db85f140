//! Live patching of x86-64 functions, bytes in and bytes out.
//!
//! # What this removes
//! A breakpoint enters the kernel on each hit, and other patchers stop every
//! thread of the target while they write. A jump to a trampoline that counts in
//! place does neither: a hit costs two jumps and an increment, and the patch can
//! be written while threads run the function.
//!
//! # How
//! ```text
//! site:   jmp rel32 ──> trampoline:  save rax, find the thread's counters,
//!         T  (trap byte)             add one, restore rax
//!         T                     copy: the displaced instructions, relocated
//! rest: <───────────────────────────  jmp rest
//! ```
//! [`shape`] reads a function and says what can stand at a site; [`Planner::place`]
//! finds room for the trampoline and returns a [`Patch`]: every byte that has to
//! be written, and where. Nothing here touches memory or the operating system.
//!
//! # Invariants
//! 1. Every instruction head that a patch covers holds a byte that traps for
//!    ever ([`Head`]): a thread that stood there, or jumps there later, faults at
//!    that very byte and is moved on to the relocated copy. So the bytes of the
//!    displacement are not free, and the trampoline's address follows from them.
//! 2. A trampoline preserves every register but the flags; away from a function's
//!    entry the flags and the 128 bytes below the stack pointer too.
//! 3. A displaced call pushes the address that the original call would have
//!    pushed, so that unwinders and the callee see nothing new.
//! 4. Two patches never cover or displace the same byte ([`Refusal::Overlaps`]).
//! 5. A jump survives that somebody else sets a breakpoint on its site and takes it
//!    off, which puts the original first byte in front of the displacement: what
//!    then stands there traps, or is the original instruction. Where that cannot
//!    be had at a function's entry, the site is an instruction further on. Jumps where
//!    a system call gets its number are excepted: the call would fail with ENOSYS.
//!
//! Not kept: under a hardware shadow stack a displaced call, which pushes and
//! jumps, would fault on its return.
//!
//! # Duties of the caller
//! The bytes given must be the ones in memory; [`Space`] must list only ranges
//! that are free to map; the trap handler needs [`Patch::heads`] for as long as a
//! thread may stand in the window, and the signals that [`Patch::needs_sigill`]
//! names. A fragment of a function that others jump into (gcc's `.cold` parts) is
//! no entry: see [`Shape::preserving_everything`].
//!
//! The idea of displacement bytes that trap comes from instruction punning
//! (Chamith et al., PLDI 2017, "Instruction Punning: Lightweight Instrumentation
//! for x86-64").
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arena;
mod argument;
mod by_itself;
mod code;
mod counters;
mod decode;
mod displacement;
mod entry;
mod filter;
mod flags;
mod futex;
mod guard;
mod hits;
mod plan;
mod pushed;
mod recorded;
mod refusal;
mod relocate;
mod returns;
mod shape;
mod stack_check;
mod store;
mod syscall;
mod timed;
mod timed_values;
mod trampoline;
mod twice;
mod unwind;
mod values;

pub use arena::{ARENA_LEN, Arena, Space, UsedArena};
pub use argument::first_argument;
pub use decode::{
    FunctionCode, Padding, call_returns, check_boundary, direct_calls, padding, transfers,
};
pub use displacement::{is_head_patched, is_trap_byte};
pub use futex::{FutexSite, Notice, any_futex_site, futex_sites};
pub use hits::{Apart, Hits};
pub use plan::{Head, Island, Patch, Planner, Telling};
pub use refusal::Refusal;
pub use returns::{Callee, Cfa, ReturnReads, return_reads, stub_slot};
pub use shape::{Shape, Strategy, shape, signal_return};
pub use stack_check::behind_stack_check;
pub use store::store_before;
pub use syscall::{SyscallSite, any_syscall_site, may_change_masks, stays, syscall_sites};
pub use trampoline::{Abi, Body};
