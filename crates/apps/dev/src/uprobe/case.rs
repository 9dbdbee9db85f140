//! The cases (ways to trace) that are compared, and the loads (called functions) of each.

use tiptoe_collector::Split;
use tiptoe_event::Via;

use crate::assembly::{BARE_RETURNS, DETOURS, KINDS, OWN_TRAP, Site, TRAP};
use crate::driver::{Calls, TraceRequest};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Case {
    Floor,
    ReturnFloor,
    Count,
    Locked,
    Filtered,
    EntryReturn,
    Latency,
    Record,
    Under,
    NotUnder,
    ByArg0,
    LatencyByArg0,
    Kernel,
    KernelReturn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallLoad {
    pub site: Site,
    pub depth: u32,
    pub threads: u32,
}

/// A function whose first instruction the kernel single-steps out of line, as most instructions.
pub(super) const SINGLE_STEPPED: Site = KINDS[5];
const _: () = assert!(SINGLE_STEPPED.functions == 1);

/// A filter that is never true, because the functions are called with 7.
const FILTER: &str = "arg0 > 4096";
const AROUND: &str = "measure";
const ELSEWHERE: &str = "gap";

impl Case {
    pub(super) const ALL: [Case; 14] = [
        Case::Floor,
        Case::ReturnFloor,
        Case::Count,
        Case::Locked,
        Case::Filtered,
        Case::EntryReturn,
        Case::Latency,
        Case::Record,
        Case::Under,
        Case::NotUnder,
        Case::ByArg0,
        Case::LatencyByArg0,
        Case::Kernel,
        Case::KernelReturn,
    ];

    pub(super) fn name(self, site: Site) -> &'static str {
        match self {
            Case::Floor if site == TRAP => "own_trap",
            Case::Floor => "detour",
            Case::ReturnFloor => "bare_return",
            Case::Count if site == TRAP => "trap",
            Case::Count => "count",
            Case::Locked => "trap_locked",
            Case::Filtered => "filtered",
            Case::EntryReturn => "entry_return",
            Case::Latency => "latency",
            Case::Record => "record",
            Case::Under => "under",
            Case::NotUnder => "not_under",
            Case::ByArg0 => "by_arg0",
            Case::LatencyByArg0 => "latency_by_arg0",
            Case::Kernel => "kernel_uprobe",
            Case::KernelReturn => "kernel_uretprobe",
        }
    }

    pub(super) fn traced<'a>(self, sites: &'a [Site], agent: &'static [u8]) -> TraceRequest<'a> {
        let via = match self {
            Case::Kernel => Via::Kernel,
            _ => Via::Agent,
        };
        let calls = match self {
            Case::EntryReturn => Calls::Returns,
            Case::Latency | Case::LatencyByArg0 => Calls::Times,
            Case::Record => Calls::Records,
            _ => Calls::Entries,
        };
        let filter =
            (self == Case::Filtered).then(|| FILTER.parse().expect("a constant in the grammar"));
        let under = match self {
            Case::Under => Some(AROUND),
            Case::NotUnder => Some(ELSEWHERE),
            _ => None,
        };
        let by = matches!(self, Case::ByArg0 | Case::LatencyByArg0).then_some(Split::Argument(0));
        TraceRequest {
            agent,
            sites,
            via,
            filter,
            under,
            by,
            calls,
            locked_lookups: self == Case::Locked,
        }
    }

    /// Returns the functions that contain the code that this floor (lower bound) measures.
    pub(super) fn floor(self, site: Site) -> Option<Site> {
        let same: &[Site] = match (self, kind(site)) {
            (Case::Floor, "push") => &DETOURS,
            (Case::Floor, _) if site == TRAP => &[OWN_TRAP],
            (Case::ReturnFloor, "push") => &BARE_RETURNS,
            _ => &[],
        };
        let of_its_size = |floor: &&Site| floor.functions == site.functions;
        same.iter().find(of_its_size).copied()
    }

    /// Returns whether the case uses the kernel's probes, which the kernel may refuse.
    pub(super) fn is_kernels(self) -> bool {
        matches!(self, Case::Kernel | Case::KernelReturn)
    }

    /// Returns whether the case counts hits. Without hits such a case would look cheap, so the bench fails.
    pub(super) fn counts(self) -> bool {
        !matches!(self, Case::Filtered | Case::NotUnder)
    }

    pub(super) fn measures(self, load: &CallLoad) -> bool {
        let CallLoad { site, threads, .. } = *load;
        // With several threads, only the kernel's trap is measured here, to compare it with [`TRAP`].
        if threads > 1 && site == SINGLE_STEPPED {
            return self == Case::Kernel;
        }
        match self {
            Case::Floor if site == TRAP => true,
            Case::Floor | Case::ReturnFloor => threads == 1 && self.floor(site).is_some(),
            Case::Count => true,
            Case::Locked => site == TRAP,
            Case::EntryReturn | Case::Latency | Case::Record => site != TRAP,
            Case::Filtered | Case::Under | Case::NotUnder | Case::ByArg0 | Case::LatencyByArg0 => {
                threads == 1 && site.functions == 1 && site != TRAP
            }
            Case::Kernel => site != TRAP && site.functions <= 256,
            // Only one function, because each needs an event, whose closing takes 80 ms.
            Case::KernelReturn => threads == 1 && site.functions == 1 && site != TRAP,
        }
    }
}

pub(super) fn kind(site: Site) -> &'static str {
    match site.name {
        name if name.starts_with("push") => "push",
        "trap" => "ret",
        name => name,
    }
}
