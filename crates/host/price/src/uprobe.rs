//! Measures the cost of a kernel uprobe, for three kinds of instruction at the probe. The probes are opened only for
//! a forked child, so this process gets no breakpoint.

use std::arch::naked_asm;
use std::io;

use tiptoe_kernel::{KernelProbe, ReplacedNop, UprobeSet, optimised};
use tiptoe_sys::host::Process;
use tiptoe_sys::host::procfs::path_of;

use super::child::{Child, now_ns};
use super::median;
use super::price::{self, Price};

const REPEATS: usize = 5;

/// The ns of a hit at a no-operation that the kernel replaces by a call, an emulated `push`, and a single-stepped
/// instruction.
#[derive(Debug)]
pub(super) struct Steps(pub(super) [f64; 3]);

impl Price for Steps {
    const KIND: &'static str = "uprobes";

    fn numbers(&self) -> Vec<f64> {
        self.0.to_vec()
    }

    fn of_numbers(numbers: &[f64]) -> Option<Steps> {
        price::bounded(numbers).map(Steps)
    }
}

/// A function to probe, and how often a measurement calls it.
type ProbeCase = (extern "C" fn(), u32);

const WITH_NOP5: [ProbeCase; 3] = [(nop5, 200), (push, 200), (mov, 20)];
const WITH_NOP10: [ProbeCase; 3] = [(nop10, 200), (push, 200), (mov, 20)];

/// Fails without the permission to open uprobes.
pub(super) fn measure() -> io::Result<Steps> {
    let (places, hits): (_, fn(u8) -> f64) = match optimised() {
        ReplacedNop::Nop5 => (&WITH_NOP5, |place| hits(&WITH_NOP5, place)),
        ReplacedNop::Nop10 => (&WITH_NOP10, |place| hits(&WITH_NOP10, place)),
    };
    // SAFETY: `hits` calls only clock_gettime and the functions below; all async-signal-safe.
    let mut child = unsafe { Child::start(hits) }?;
    let probes = open(child.pid(), places)?;
    let mut costs = [0.0; 3];
    for (place, cost) in costs.iter_mut().enumerate() {
        let all: io::Result<Vec<f64>> = (0..REPEATS).map(|_| child.ask(place as u8)).collect();
        *cost = median(all?);
    }
    let counted = probes.read().map_err(io::Error::other)?;
    let hit = |(reading, place): (&tiptoe_event::Reading, &ProbeCase)| {
        reading.count >= u64::from(place.1) * REPEATS as u64
    };
    if !counted.iter().zip(places).all(hit) {
        return Err(io::Error::other("a kernel uprobe did not count"));
    }
    Ok(Steps(costs))
}

fn open(pid: u32, places: &[ProbeCase]) -> io::Result<UprobeSet> {
    let this = Process::current();
    let maps = this.maps().map_err(io::Error::other)?;
    let text = places[0].0 as *const () as u64;
    let text = maps.iter().find(|m| m.contains(text));
    let text = text.ok_or(io::ErrorKind::NotFound)?;
    let file = this.open_mapped(text).map_err(io::Error::other)?;
    let probe = |(place, _): &ProbeCase| {
        let offset = text.file_offset(*place as *const () as u64)?;
        Some(KernelProbe {
            path: path_of(&file),
            offset,
        })
    };
    let probes: Option<Vec<KernelProbe>> = places.iter().map(probe).collect();
    let probes = probes.ok_or(io::ErrorKind::NotFound)?;
    let child = Process::new(pid).map_err(io::Error::other)?;
    UprobeSet::open(child, &probes).map_err(io::Error::other)
}

fn hits(places: &[ProbeCase], place: u8) -> f64 {
    let Some(&(function, hits)) = places.get(usize::from(place)) else {
        return f64::NAN;
    };
    function();
    let start = now_ns();
    for _ in 0..hits {
        function();
    }
    (now_ns() - start) / f64::from(hits)
}

#[unsafe(naked)]
extern "C" fn nop5() {
    naked_asm!(".byte 0x0f, 0x1f, 0x44, 0, 0", "ret");
}

#[unsafe(naked)]
extern "C" fn nop10() {
    naked_asm!(".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0", "ret");
}

#[unsafe(naked)]
extern "C" fn push() {
    naked_asm!("push rbp", "pop rbp", "ret");
}

#[unsafe(naked)]
extern "C" fn mov() {
    naked_asm!("mov rax, rdi", "ret");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probed_instruction_is_hit_and_priced() {
        match measure() {
            Ok(steps) => {
                println!("{steps:.0?}");
                assert!(steps.0.iter().all(|ns| ns.is_finite() && *ns > 0.0));
            }
            Err(why) => crate::skipped::skipped("kernel uprobes", &why.to_string()),
        }
    }
}
