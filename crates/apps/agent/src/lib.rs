//! `libtiptoe_agent.so`: the part of tiptoe that lives inside a traced program.
//!
//! Rules for every line here:
//! 1. no libc, no allocation, no thread-local storage but the three words in
//!    [`tls`]; nothing is imported and nothing of the program is replaced;
//! 2. a hit runs generated code; only a thread's first hit comes to [`hit`], and a
//!    followed call to [`calls`] where its trampoline cannot help itself;
//! 3. the agent's own thread ([`thread`]) is unknown to libc, blocks all
//!    signals, shares no descriptor table with the program, has no
//!    rights, and exists only while a tiptoe is attached;
//! 4. what the program could notice is kept from it: [`signals`] has the table.
//!
//! | module | runs on | job |
//! |---|---|---|
//! | [`entry`] | the borrowed or the starting thread | map the segments, start the thread |
//! | [`thread`] | the agent's thread | requests, tiptoe's death |
//! | [`serve`] | the agent's thread | one function a request |
//! | [`credentials`] | the agent's thread | no rights |
//! | [`lookout`] | the agent's thread | leaves a program that confines itself |
//! | [`files`] | the agent's thread, the borrowed thread | what is read of /proc/self |
//! | [`hit`] | any thread of the program | claim a slab |
//! | [`calls`], [`clockwork`] | any thread of the program | follow calls to their return, time them |
//! | [`locks`] | any thread of the program | note waits for locks, and who ended them |
//! | [`ports`] | the agent's thread | opens what libraries of the program's call |
//! | [`scopes`] | any thread of the program | note which scope it is in |
//! | [`watches`] | both | breakpoints: the agent's thread opens them, any thread of the program hits them |
//! | [`unwind`] | any thread of the program | what unwinders learn of our code |
//! | [`arenas`] | any thread of the program | where trampolines are, and what is told of them |
//! | [`space`] | all of them | which file is mapped where |
//! | [`libraries`] | a thread that loads a library | has it probed before any of its code runs |
//! | [`locked`] | a thread that has all memory locked | leaves ours out of that |
//! | [`children`] | a forked child | puts its code back before it may make no call of ours |
//! | [`signals`], [`hooks`] | any thread of the program | traps, and the program's own signals |
#![no_std]
#![warn(missing_docs)]

mod arenas;
mod asm;
mod calls;
mod children;
mod clockwork;
mod credentials;
mod described;
mod entry;
mod environ;
mod files;
mod gate;
mod hit;
mod hooks;
mod libraries;
mod loader;
mod locked;
mod locks;
mod lookout;
mod memory;
mod ports;
mod resolvers;
mod scopes;
mod segments;
mod serve;
mod shared;
mod signals;
mod space;
mod tasks;
mod text;
mod thread;
mod tls;
mod told;
mod unwind;
mod watches;

// Only in the agent's own profile: a build of the whole workspace links std.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // No code path panics by design; a thread that gets here all the same must
    // not go on with a broken promise, and must not take the program along.
    loop {
        tiptoe_sys::raw::sleep_ns(999_000_000);
    }
}
