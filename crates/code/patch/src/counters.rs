//! How generated code finds and changes the thread's counters.

use crate::code::{Ahead, Code, IF_EQUAL, IF_NOT_EQUAL, To};

/// The thread's counters in %rax; the jump, far or near, is taken where it has none.
pub(crate) fn load(code: &mut Code, tls: i32, far: bool) -> Ahead {
    of_thread(code, tls);
    code.put(&[0x48, 0x85, 0xc0]); // test %rax,%rax
    code.jump_ahead(IF_EQUAL, far)
}

/// The thread's counters, or 0, in %rax.
pub(crate) fn of_thread(code: &mut Code, tls: i32) {
    code.put(&[0x64, 0x48, 0x8b, 0x04, 0x25]).put32(tls); // mov %fs:tls,%rax
    code.put(&[0x48, 0x8b, 0x00]); // mov (%rax),%rax
}

/// Has the agent's cold entry see to a thread that has none, given what it `asked` for; a
/// forked child goes on at `out` without.
pub(crate) fn ask(code: &mut Code, out: usize, asked: i32) {
    unless_child(code, out);
    code.put(&[0x68])
        .put32(asked)
        .relative(&[0xe8], To::Cold, &[]);
}

/// A forked child, whose threads have no counters either, goes on at `out`.
pub(crate) fn unless_child(code: &mut Code, out: usize) {
    code.relative(&[0x80, 0x3d], To::Gate, &[0]) // cmpb $0,GATE(%rip)
        .jump_back(Some(IF_EQUAL), out);
}

/// The same where a hit is told apart by a value, which only the trampoline knows: the thread
/// goes on at `ready` with counters; where it gets none, which a child does not, the agent has
/// counted the hit, and it goes on at `out`.
pub(crate) fn ask_again(code: &mut Code, [ready, out]: [usize; 2], asked: i32, tls: i32) {
    ask(code, out, asked);
    of_thread(code, tls);
    code.put(&[0x48, 0x85, 0xc0]); // test %rax,%rax
    code.jump_back(Some(IF_NOT_EQUAL), ready);
    code.jump_back(None, out);
}

/// Adds one to the word at `cell` bytes from where %rax points.
pub(crate) fn increment(code: &mut Code, cell: i32) {
    code.put(&[0x48, 0xff, 0x80]).put32(cell); // incq cell(%rax)
}
