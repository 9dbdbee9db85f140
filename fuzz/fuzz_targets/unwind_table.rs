//! Any `.eh_frame` must compile soon, to sorted rows: at most about two rows for each byte. A step must raise the
//! stack pointer, and read nothing below it. The first 24 bytes are the address, the stack pointer and %rbp.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiptoe_stack::Frame;
use tiptoe_stack::compile::{Section, Table};

fuzz_target!(|input: &[u8]| {
    let Some((registers, bytes)) = input.split_at_checked(24) else {
        return;
    };
    let register = |index: usize| {
        let word = registers[8 * index..][..8].try_into();
        u64::from_le_bytes(word.unwrap_or_default())
    };
    let (pc, sp, bp) = (register(0), register(1), register(2));
    let table = Table::compile(&Section {
        bytes,
        address: 0x1000,
        word: 8,
        x86_64: true,
    });
    let rows = table.rows();
    assert!(rows.len() <= 2 * bytes.len() + 2);
    assert!(rows.windows(2).all(|pair| pair[0] >> 32 < pair[1] >> 32));
    let read = |at: u64| {
        assert!(at >= sp && at - sp < 1 << 17);
        Some(at)
    };
    let starts = rows.iter().map(|row| row >> 32);
    for at in starts.chain([pc]) {
        if let Some(caller) = table.rule(at).step(&Frame { pc, sp, bp }, read) {
            assert!(caller.sp > sp);
        }
    }
});
