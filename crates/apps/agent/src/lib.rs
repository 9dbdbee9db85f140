//! `libtiptoe_agent.so`: the part of tiptoe that lives inside a traced program.
//!
//! Rules for every line here:
//! 1. no libc, no allocation, no thread-local storage except the words in [`tls`]; nothing is imported, and no
//!    function of the program is replaced;
//! 2. a hit runs generated code; only a thread's first hit calls [`hit`], and a followed call calls [`calls`] only if
//!    its trampoline cannot handle it;
//! 3. the agent's own thread ([`thread`]) is unknown to libc, blocks all signals, shares no descriptor table with the
//!    program, has no rights, and exists only while a tiptoe is attached;
//! 4. the program must not notice the agent: [`signals`] lists what is hidden from it.
//!
//! | module | runs on | job |
//! |---|---|---|
//! | [`entry`] | the borrowed or the starting thread | map the segments, start the agent's thread |
//! | [`thread`] | the agent's thread | wait for requests and for tiptoe's death |
//! | [`serve`] | the agent's thread | one function per request |
//! | [`session`] | the borrowed thread, the agent's thread | begin and end all state of a session |
//! | [`credentials`] | the agent's thread | give up all rights |
//! | [`confinement`] | the agent's thread | leave a program that confines itself |
//! | [`files`] | the agent's thread, the borrowed thread | read /proc/self |
//! | [`hit`] | any thread of the program | claim a slab |
//! | [`calls`], [`clockwork`] | any thread of the program | follow calls to their return, time them |
//! | [`locks`] | any thread of the program | record waits for locks, and the threads that ended them |
//! | [`ports`] | the agent's thread | open the ports of libraries that the program links |
//! | [`scopes`] | any thread of the program | record the thread's scope |
//! | [`watches`] | the agent's thread opens breakpoints, any thread hits them | record accesses to variables |
//! | [`unwind`], [`forced`] | any thread of the program | describe our code to unwinders |
//! | [`forbidden`] | any thread of the program | keep a thread that may not read the clock from doing so |
//! | [`arenas`] | any thread of the program | find trampolines and their unwind information |
//! | [`space`] | all of them | know which file is mapped where |
//! | [`libraries`], [`library_changes`] | a thread that loads a library | have the library probed before any of its code runs |
//! | [`locked`] | a thread that locks all memory | keep our memory unlocked |
//! | [`children`] | a forked child | restore its code before a filter forbids our system calls |
//! | [`signals`], [`hooks`] | any thread of the program | handle traps, and the program's own signals |
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

// Only in the agent's own profile, because a build of the whole workspace links std.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // No code path panics by design. A thread that gets here must not continue, because an invariant is broken, and
    // must not end the program.
    loop {
        tiptoe_sys::raw::sleep_ns(999_000_000);
    }
}
