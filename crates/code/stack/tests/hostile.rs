//! Any bytes compile to a sorted table of bounded length, whose rules lead only upwards.

use proptest::prelude::*;
use tiptoe_stack::compile::{Section, Table};
use tiptoe_stack::{Frame, Rule};

fn check(bytes: &[u8], addresses: &[u64]) {
    let table = Table::compile(&Section {
        bytes,
        address: 0x1000,
        word: 8,
        x86_64: true,
    });
    let rows = table.rows();
    assert!(rows.len() <= 2 * bytes.len() + 2);
    assert!(rows.windows(2).all(|pair| pair[0] >> 32 < pair[1] >> 32));
    for address in addresses {
        let last = rows.iter().rfind(|row| **row >> 32 <= *address);
        let rule = last.map_or(Rule::UNKNOWN, |row| Rule::from_bits(*row as u32));
        let found = table.rule(*address);
        assert_eq!(
            found,
            if *address >> 32 == 0 {
                rule
            } else {
                Rule::UNKNOWN
            }
        );
        let (pc, sp, bp) = (*address, *address, address.wrapping_mul(3));
        let read = |at: u64| {
            assert!(at >= sp && at - sp < 1 << 17, "{at:#x} from {sp:#x}");
            Some(at)
        };
        if let Some(caller) = found.step(&Frame { pc, sp, bp }, read) {
            assert!(caller.sp > sp);
        }
    }
}

/// A real program's CIE and FDE.
const REAL: [u8; 68] = [
    20, 0, 0, 0, 0, 0, 0, 0, 1, 0x7a, 0x52, 0, 1, 0x78, 16, 1, 0x1b, 12, 7, 8, 0x90, 1, 0,
    0, //
    36, 0, 0, 0, 28, 0, 0, 0, 0, 0x10, 0, 0, 0x40, 0, 0, 0, 0, 14, 16, 70, 14, 24, 74, 15, 11, 119,
    8, 128, 0, 63, 26, 59, 42, 51, 36, 34, 0, 0, 0, 0, 0, 0, 0, 0,
];

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in any::<[u64; 4]>()) {
        check(&bytes, &at);
    }

    #[test]
    fn a_few_wrong_bytes(changes in proptest::collection::vec((0..REAL.len(), any::<u8>()), 0..6),
                                  at in 0x1000..0x3000u64) {
        let mut bytes = REAL;
        changes.iter().for_each(|(place, byte)| bytes[*place] = *byte);
        check(&bytes, &[at, at << 3, u64::MAX - at]);
    }
}
