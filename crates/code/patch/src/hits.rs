//! Which hits of a probe count.
//!
//! One that is not below the gate costs 1.0 ns in a hot loop, one that is and counts 0.8,
//! as much as where every hit counts (`tiptoe bench uprobe`: `not_under`, `under`, `count`).

use tiptoe_event::Filter;

use tiptoe_wire::Geometry;
use tiptoe_wire::calls::{UNDER, VALUED};

use crate::code::{Ahead, Code, IF_EQUAL};
use crate::filter;

/// Which hits count: those that pass all of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// What their arguments have to be, if anything.
    pub filter: Option<Filter>,
    /// Whether their thread has to be in a call that [`crate::Body::Gate`] follows.
    pub under: bool,
    /// Which argument's values they are told apart by.
    pub by: Option<u8>,
}

impl Hits {
    /// Those that a filter passes, all without one.
    pub fn filtered(filter: Option<Filter>) -> Hits {
        Hits {
            filter,
            ..Hits::default()
        }
    }

    /// What the cold entry is told of them.
    pub(crate) fn flags(&self) -> i32 {
        let under = if self.under { UNDER } else { 0 };
        under | self.by.map_or(0, |_| VALUED)
    }

    /// Whether argument `arg` decides.
    pub(crate) fn look_at(&self, arg: u8) -> bool {
        let filter = self.filter.as_ref();
        let filtered = |filter: &Filter| filter.comparisons().iter().any(|c| c.arg == arg);
        self.by == Some(arg) || filter.is_some_and(filtered)
    }

    /// Appends the filter; the jumps that are taken where it does not pass.
    pub(crate) fn emit_filter(&self, code: &mut Code) -> Vec<Ahead> {
        let filter = self.filter.as_ref();
        filter.map_or(Vec::new(), |filter| filter::emit(code, filter))
    }

    /// Appends the test of the thread's counters, at %rax; the jump, far or near, is
    /// taken where the thread is not below the gate.
    pub(crate) fn emit_under(&self, code: &mut Code, far: bool) -> Option<Ahead> {
        const INSIDE: u8 = Geometry::INSIDE as u8 * 8;
        self.under.then(|| {
            code.put(&[0x48, 0x83, 0x78, INSIDE, 0]); // cmpq $0,INSIDE(%rax)
            code.jump_ahead(IF_EQUAL, far)
        })
    }
}
