//! Finds a wait's call site: the first frame outside the tracepoint and the lock's code.

use tiptoe_sys::host::kallsyms::KernelSymbols;

/// Name prefixes of functions between a tracepoint and its program.
const TRACING: [&str; 7] = [
    "__traceiter_",
    "__bpf_trace_",
    "bpf_trace_run",
    "bpf_prog_",
    "trace_call_bpf",
    "perf_trace_",
    "__mmap_lock_do_trace_",
];
/// Name prefixes of locking functions outside [`SECTIONS`].
const LOCKING: [&str; 14] = [
    "__percpu_down_read",
    "__pv_queued_spin_lock",
    "_raw_",
    "down_",
    "mutex_lock",
    "native_queued_spin_lock",
    "percpu_down_",
    "percpu_rwsem_",
    "queued_",
    "resilient_queued_spin_lock",
    "rt_mutex_",
    "rt_spin_lock",
    "rwbase_",
    "rwsem_",
];
const SECTIONS: [[&str; 2]; 2] = [
    ["__sched_text_start", "__sched_text_end"],
    ["__lock_text_start", "__lock_text_end"],
];
const TRACED: usize = 8;

/// Names kernel code and finds call sites.
#[derive(Debug, Default)]
pub struct Callsites {
    symbols: KernelSymbols,
    sections: Vec<std::ops::Range<u64>>,
}

impl Callsites {
    /// Searches with these symbols.
    pub fn new(symbols: KernelSymbols) -> Self {
        let range =
            |[start, end]: [&str; 2]| Some(symbols.address_of(start)?..symbols.address_of(end)?);
        let sections = SECTIONS.into_iter().filter_map(range).collect();
        Self { symbols, sections }
    }

    /// Returns whether the kernel hides its symbols.
    pub fn are_hidden(&self) -> bool {
        self.symbols.is_hidden()
    }

    /// Returns a stack (innermost frame first) from the call site on; empty if symbols are hidden, because the lock's
    /// functions are then unknown.
    pub fn from_callsite<'a>(&self, stack: &'a [u64]) -> &'a [u64] {
        if self.are_hidden() {
            return &[];
        }
        let traced = &stack[..stack.len().min(TRACED)];
        let tracing = traced
            .iter()
            .rposition(|address| self.starts_with_any(*address, &TRACING));
        let begin = tracing.map_or(0, |last| last + 1);
        let callers = stack[begin..].iter();
        let own = callers.take_while(|address| self.is_locking(**address));
        let begin = begin + own.count();
        // If all frames are lock functions, the last is the best guess.
        &stack[begin.min(stack.len().saturating_sub(1))..]
    }

    /// Returns `function+0x1c`, or the address if no function is known.
    pub fn name(&self, address: u64) -> String {
        match self.symbols.find(address) {
            Some(place) => match place.name.split_once(" [") {
                None => format!("{}+{:#x}", place.name, place.offset),
                Some((name, module)) => format!("{name}+{:#x} [{module}", place.offset),
            },
            None => format!("{address:#x}"),
        }
    }

    /// Returns the function's name, or the address.
    pub fn function(&self, address: u64) -> String {
        let place = self.symbols.find(address);
        place.map_or_else(|| format!("{address:#x}"), |place| place.name.to_owned())
    }

    /// Returns the name of a lock that is a kernel variable.
    pub fn variable(&self, address: u64) -> Option<String> {
        // If the nearest symbol is farther, the lock is on the heap.
        const NEAR: u64 = 1 << 16;
        let place = self.symbols.find(address)?;
        match place.offset {
            0 => Some(place.name.to_owned()),
            offset if offset < NEAR => Some(format!("{}+{offset:#x}", place.name)),
            _ => None,
        }
    }

    fn is_locking(&self, address: u64) -> bool {
        let in_section = |section: &std::ops::Range<u64>| section.contains(&address);
        self.sections.iter().any(in_section) || self.starts_with_any(address, &LOCKING)
    }

    fn starts_with_any(&self, address: u64, starts: &[&str]) -> bool {
        let place = self.symbols.find(address);
        place.is_some_and(|place| starts.iter().any(|start| place.name.starts_with(start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callsites() -> Callsites {
        let text = "0000000000001000 t bpf_prog_12_contention_begin\t[bpf]\n\
                    0000000000002000 T __traceiter_contention_begin\n\
                    0000000000003000 T vm_mmap_pgoff\n0000000000003100 T do_syscall_64\n\
                    0000000000004000 T __sched_text_start\n0000000000004000 T down_write_killable\n\
                    0000000000005000 T __sched_text_end\n0000000000006000 T percpu_rwsem_wait\n\
                    0000000000007000 D tasklist_lock\n0000000000009000 t f\t[kvm]\n";
        Callsites::new(KernelSymbols::parse(text))
    }

    fn check(stack: &[u64], callsite: &[u64]) {
        assert_eq!(callsites().from_callsite(stack), callsite, "{stack:#x?}");
    }

    #[test]
    fn the_call_site_follows_tracing_and_locking() {
        let traced = [0x1010, 0x2010];
        check(
            &[0x1010, 0x2010, 0x4010, 0x4800, 0x3010, 0x3110],
            &[0x3010, 0x3110],
        );
        check(&[0x6010, 0x3010], &[0x3010]);
        check(&[0x3010, 0x4010], &[0x3010, 0x4010]);
        check(&[0x1010, 0x2010, 0x4010], &[0x4010]);
        check(&traced, &[0x2010]);
        check(&[], &[]);
        assert!(Callsites::default().from_callsite(&[0x3010]).is_empty());
    }

    #[test]
    fn names() {
        let callsites = callsites();
        assert_eq!(callsites.name(0x3010), "vm_mmap_pgoff+0x10");
        assert_eq!(callsites.name(0x9004), "f+0x4 [kvm]");
        assert_eq!(callsites.name(0x10), "0x10");
        assert_eq!(callsites.function(0x3010), "vm_mmap_pgoff");
        assert_eq!(callsites.variable(0x7000).as_deref(), Some("tasklist_lock"));
        assert_eq!(
            callsites.variable(0x7040).as_deref(),
            Some("tasklist_lock+0x40")
        );
        assert_eq!(callsites.variable(0xffff_0000_0000), None);
    }
}
