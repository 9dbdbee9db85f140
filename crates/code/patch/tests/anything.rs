//! Random bytes give a refusal, or a patch whose inner heads (starts of instructions) trap.

mod traps;

use proptest::prelude::*;
use tiptoe_patch::{
    Abi, Body, FunctionCode, GroupValue, Hits, Notice, Planner, Space, Strategy as How,
    futex_sites, padding, shape, syscall_sites,
};
use tiptoe_wire::AgentAddresses;
use traps::traps_at;

const AT: u64 = 0x5555_5555_0000;

fn planner(low: u64, high: u64) -> Planner {
    let (below, above) = (AT - (3 << 30)..AT - low, AT + high..AT + (3 << 30));
    let (preferred, last_resort) = (vec![below], vec![above]);
    let space = Space {
        preferred,
        last_resort,
        ..Space::default()
    };
    Planner::new(
        Abi {
            tls: -64,
            frames: -72,
            agent: AgentAddresses {
                cold_entry: AT,
                hook_entry: AT,
                slow_entry: AT,
                time_entry: AT,
                futex_entry: AT,
                gate: 0,
                thunks: 0,
            },
        },
        space,
    )
}

fn by(slot: u32) -> Hits {
    let by = (slot & 4 != 0).then_some(match (slot >> 3) as u8 % 7 {
        6 => GroupValue::Scope,
        arg => GroupValue::Argument(arg),
    });
    Hits {
        by,
        ..Hits::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..96),
        size in 0usize..128,
        offset in 0usize..32,
        low in 0u64..3 << 30,
        high in 4096u64..3 << 30,
        slot in any::<u32>(),
    ) {
        let function = FunctionCode { address: AT, bytes: &bytes, size };
        let islands = Vec::from_iter(padding(&function));
        let mut planner = planner(low, high);
        if let Ok(shape) = shape(&function, offset) {
            let body = match slot % 2 {
                0 => Body::Count { slot, hits: Hits::default() },
                _ => Body::Call { slot: slot >> 8, probe: slot % 1000, timed: slot & 2 != 0, hits: by(slot) },
            };
            if let Ok(patch) = planner.plan(&shape, &body, || islands.clone()) {
                // A head that resumes at the copy is a guard (an invalid operand), which needs no trap byte.
                let mut inner = patch.heads[1..].iter().filter(|h| h.resume != patch.copy);
                let trapped = inner.all(|h| traps_at(&patch, h.offset));
                prop_assert!(trapped, "a head without a trap byte");
                prop_assert_eq!(patch.strategy == How::Short, patch.island.is_some());
                prop_assert!(planner.plan(&shape, &body, || islands.clone()).is_err(), "placed twice");
            }
        }
        for site in syscall_sites(&function, &[0, 1, 2]) {
            let _ = planner.plan(&site.shape, &Body::Syscall { nr: site.nr, recall: Some(0) }, || islands.clone());
        }
        for site in futex_sites(&function, |_| Some(function)) {
            for shape in site.after_call.iter().chain([&site.call.shape]) {
                let _ = planner.plan(shape, &Body::Futex(Notice::before_call(8, true)), || islands.clone());
            }
        }
    }
}
