//! Live patching of x86-64 functions.
//!
//! # What this removes
//! A breakpoint enters the kernel on each hit, and other patchers stop every thread. With a jump to a *trampoline* (the
//! code that counts) a hit costs two jumps and an increment, and the function may run while it is patched.
//!
//! # How
//! ```text
//! site:   jmp rel32 ──> trampoline:  save rax, find the thread's counters,
//!         T  (trap byte)             add one, restore rax
//!         T                     copy: the displaced instructions, relocated
//! rest: <───────────────────────────  jmp rest
//! ```
//! The jump *displaces* (overwrites) instructions. [`shape()`] reads a function and returns what fits at a site.
//! [`Planner::plan`] finds room for the trampoline and returns a [`Patch`]. The crate touches neither memory nor the
//! operating system.
//!
//! # Invariants
//! 1. Each *head*, the first byte of a displaced instruction, traps ([`Patch::heads`]). A thread at a head continues in
//!    the relocated copy.
//! 2. A trampoline preserves every register but the flags. Inside a function it also preserves the flags and the 128
//!    bytes below the stack pointer.
//! 3. A displaced call pushes the original return address, so that unwinders and the callee see no difference.
//! 4. Two patches never cover or displace the same byte ([`Refusal::Overlaps`]).
//! 5. A jump survives another tool's breakpoint on its site (see `guard`). Exception: on the `mov` of a system call's
//!    number, the breakpoint's removal leaves a wrong number, and the call fails with ENOSYS.
//!
//! Hardware shadow stacks are not supported, because they lack the return address that a displaced call pushes.
//!
//! # Duties of the caller
//! - The bytes must be those in memory, and [`Space`]'s ranges must be free to map.
//! - The trap handler must know [`Patch::heads`] while a thread may be inside the displaced instructions, and handle
//!   SIGILL if [`Patch::needs_sigill`].
//! - A fragment that other functions jump into (gcc's `.cold` parts) is no entry; use [`Shape::preserving_everything`].
//!
//! Displacement bytes that trap are an idea of "Instruction Punning: Lightweight Instrumentation for x86-64" (Chamith
//! et al., PLDI 2017).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod abi;
mod arena;
mod argument;
mod body;
mod build;
mod by_itself;
mod call_numbers;
mod code;
mod counters;
mod decode;
mod displacement;
mod entry;
mod filter;
mod flags;
mod followed;
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
mod strategy;
mod survey;
mod syscall;
mod timed;
mod timed_values;
mod trampoline;
mod twice;
mod unwind;
mod values;

pub use abi::Abi;
pub use arena::{ARENA_LEN, Arena, CallerArena, Space, UsedArena};
pub use argument::first_argument;
pub use body::Body;
pub use call_numbers::{may_change_masks, stays};
pub use decode::{FunctionCode, call_returns, check_boundary, direct_calls, transfers};
pub use displacement::{is_head_patched, is_trap_byte};
pub use entry::shape;
pub use futex::{FutexSite, Notice, any_futex_site, futex_sites};
pub use hits::{GroupValue, Hits};
pub use plan::{Island, Patch, Planner, UnwindBytes};
pub use refusal::Refusal;
pub use returns::{Callee, Cfa, ReturnReads, return_reads, stub_slot};
pub use shape::{Shape, signal_return};
pub use stack_check::after_stack_check;
pub use store::store_before;
pub use strategy::Strategy;
pub use survey::{Padding, padding};
pub use syscall::{SyscallSite, any_syscall_site, may_replace_block, syscall_sites};
