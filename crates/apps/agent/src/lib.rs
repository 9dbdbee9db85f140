//! `libtiptoe_agent.so`: tiptoe's part inside a traced program.
//!
//! A *hit* is one execution of a probed instruction. A *trampoline*, generated code, counts the hit in the thread's
//! *slab*, a block of counters, at the probe's *slot*. A *followed* call, whose return counts too, has a *frame*, our
//! record of that call. The call returns through the trampoline or a *return thunk*, generated code for one return
//! address. A session has two segments shared with tiptoe ([`tiptoe_wire`]): the agent writes *data*, tiptoe writes the
//! *plan*.
//!
//! Rules for every line here:
//! 1. no libc, no allocation, no thread-local storage except the words in [`tls`]; the library imports no symbol, and
//!    its symbols replace none of the program's;
//! 2. a hit runs a trampoline. The trampoline calls [`hit`] only if the thread has no slab, and [`calls`] only for a
//!    followed call that generated code cannot handle;
//! 3. the agent's own thread ([`thread`]) is unknown to libc, blocks all signals, shares no descriptor table with
//!    the program, has no rights, and exists only while a tiptoe is attached;
//! 4. the program must not notice the agent: [`signals`] lists the effects that remain visible.
//!
//! | runs on | modules |
//! |---|---|
//! | the agent's thread | [`thread`], [`serve`], [`credentials`], [`confinement`], [`ports`] |
//! | the agent's thread, and the thread that tiptoe borrows for the injection | [`session`], [`files`] |
//! | that borrowed thread, or the first thread of a command | [`entry`] |
//! | a thread that loads a library | [`libraries`], [`library_changes`] |
//! | a thread that locks all memory | [`locked`] |
//! | a forked child | [`children`] |
//! | the agent's thread opens breakpoints, any thread hits them | [`watches`] |
//! | any thread of the program | [`hit`], [`calls`], [`clockwork`], [`locks`], [`scopes`], [`signals`], [`hooks`] |
//! | any thread of the program | [`unwind`], [`forced`], [`forbidden`], [`arenas`] |
//! | all of these threads | [`space`] |
#![no_std]
#![warn(missing_docs)]

mod arenas;
mod asm;
mod calls;
mod children;
mod clockwork;
mod confinement;
mod credentials;
mod described;
mod entry;
mod environ;
mod files;
mod forbidden;
mod forced;
mod forced_records;
mod gate;
mod hit;
mod hooks;
mod libraries;
mod library_changes;
mod loader;
mod lock_port;
mod locked;
mod locks;
mod mask;
mod memory;
mod own_thread;
mod owner;
mod patched_code;
mod ports;
mod program_call;
mod resolvers;
mod scopes;
mod segments;
mod serve;
mod session;
mod shared;
mod signals;
mod space;
mod stubs;
mod taken_slab;
mod tasks;
mod text;
mod thread;
mod tls;
mod unwind;
mod unwind_info;
mod watches;

// Only the agent's own profile compiles this, because other builds link std's handler.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // A panic means a broken invariant. The thread must neither continue nor end the program.
    loop {
        tiptoe_sys::raw::sleep_ns(999_000_000);
    }
}
