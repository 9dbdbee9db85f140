//! Code that finds and changes the thread's counters.

use crate::code::{Code, ForwardJump, IF_EQUAL, IF_NOT_EQUAL, LinkTarget};

pub(crate) fn load(code: &mut Code, tls: i32, far: bool) -> ForwardJump {
    of_thread(code, tls);
    code.put(&[0x48, 0x85, 0xc0]); // test %rax,%rax
    code.jump_ahead(IF_EQUAL, far)
}

pub(crate) fn of_thread(code: &mut Code, tls: i32) {
    code.put(&[0x64, 0x48, 0x8b, 0x04, 0x25]).put32(tls); // mov %fs:tls,%rax
    code.put(&[0x48, 0x8b, 0x00]); // mov (%rax),%rax
}

/// For a thread without counters, calls the cold entry of the agent (our library). A forked child continues at `out`
/// instead, because only its parent is traced.
pub(crate) fn call_cold(code: &mut Code, out: usize, argument: i32) {
    unless_child(code, out);
    code.put(&[0x68])
        .put32(argument)
        .relative(&[0xe8], LinkTarget::Cold, &[]);
}

/// Jumps to `out` in a forked child. Changes %rax.
pub(crate) fn unless_child(code: &mut Code, out: usize) {
    code.relative(&[0x48, 0x8b, 0x05], LinkTarget::Gate, &[]); // mov GATE(%rip),%rax
    code.put(&[0x80, 0x38, 0]); // cmpb $0,(%rax)
    code.jump_back(Some(IF_EQUAL), out);
}

/// Calls the cold entry for a hit grouped by a value. If the agent then gives the thread counters, it leaves the hit to
/// the trampoline's code at `ready`, because the agent does not know the value.
pub(crate) fn call_cold_by_value(
    code: &mut Code,
    [ready, out]: [usize; 2],
    argument: i32,
    tls: i32,
) {
    call_cold(code, out, argument);
    of_thread(code, tls);
    code.put(&[0x48, 0x85, 0xc0]); // test %rax,%rax
    code.jump_back(Some(IF_NOT_EQUAL), ready);
    code.jump_back(None, out);
}

pub(crate) fn increment(code: &mut Code, cell: i32) {
    code.put(&[0x48, 0xff, 0x80]).put32(cell); // incq cell(%rax)
}
