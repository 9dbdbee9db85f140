//! Loads and attaches BPF programs, and reads their time.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use aya::maps::{Array, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::raw_trace_point::RawTracePointLink;
use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::trace_point::TracePointLink;
use aya::programs::{Program, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader, Pod};

use tiptoe_event::{HISTOGRAM_BUCKETS, Histogram};
use tiptoe_sys::host::capabilities;
use tiptoe_sys::host::tracefs::Tracefs;
use zerocopy::FromBytes;

use crate::Error;
use crate::refusal::{bpf_refusal, no_tracepoint};

/// Runs of BPF programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTimes {
    /// The runs.
    pub runs: u64,
    /// The runs' time.
    pub run_ns: u64,
}

/// A CPU's state: `struct cpu` of `bpf/run.h`.
#[derive(FromBytes)]
#[repr(C)]
pub(crate) struct Cpu<Own> {
    pub(crate) busy: u64,
    pub(crate) runs: u64,
    pub(crate) run_ns: u64,
    pub(crate) entered_ns: u64,
    pub(crate) own: Own,
}

/// Returns a loader whose programs use the process ids of tiptoe's PID namespace.
pub(crate) fn loader() -> EbpfLoader<'static> {
    static NAMESPACE: OnceLock<[u64; 2]> = OnceLock::new();
    let [device, inode] = NAMESPACE.get_or_init(|| {
        let own = capabilities::pid_namespace();
        own.map_or([0; 2], |(device, inode)| [device, inode])
    });
    let mut loader = EbpfLoader::new();
    loader
        .override_global("namespace_dev", device, true)
        .override_global("namespace_ino", inode, true);
    loader
}

pub(crate) struct Ring(pub(crate) RingBuf<MapData>);

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ring")
    }
}

impl Ring {
    pub(crate) fn take(bpf: &mut Ebpf, name: &str, what: &str) -> Result<Ring, Error> {
        let map = bpf.take_map(name).ok_or_else(|| no_part(name))?;
        let ring = RingBuf::try_from(map).map(Ring);
        ring.map_err(|error| bpf_refusal(what, &error))
    }

    pub(crate) fn read<T>(&mut self, decode: impl Fn(&[u8]) -> Option<T>) -> Vec<T> {
        let mut reports = Vec::new();
        while let Some(bytes) = self.0.next() {
            reports.extend(decode(&bytes));
        }
        reports
    }
}

#[derive(Debug)]
pub(crate) enum Link {
    Raw { _link: RawTracePointLink },
    Classic { _link: TracePointLink },
    Typed { _link: BtfTracePointLink },
}

pub(crate) fn load_typed(
    bpf: &mut Ebpf,
    [program, group, name]: [&str; 3],
    btf: &Btf,
    what: &str,
) -> Result<(), Error> {
    let loaded = match bpf.program_mut(program) {
        Some(Program::BtfTracePoint(program)) => program.load(name, btf),
        _ => return Err(no_part(program)),
    };
    loaded.map_err(|error| match error {
        ProgramError::Btf(_) => Error::NoTracepoint {
            name: format!("{group}:{name}"),
        },
        error => bpf_refusal(what, &error),
    })
}

pub(crate) fn load_program(bpf: &mut Ebpf, name: &str, what: &str) -> Result<(), Error> {
    let loaded = match bpf.program_mut(name) {
        Some(Program::RawTracePoint(program)) => program.load(),
        Some(Program::TracePoint(program)) => program.load(),
        Some(Program::PerfEvent(program)) => program.load(),
        _ => return Err(no_part(name)),
    };
    loaded.map_err(|error| bpf_refusal(what, &error))
}

pub(crate) fn program_fd<'a>(
    bpf: &'a Ebpf,
    name: &str,
    what: &str,
) -> Result<BorrowedFd<'a>, Error> {
    let program = bpf.program(name).ok_or_else(|| no_part(name))?;
    let fd = program.fd().map_err(|error| bpf_refusal(what, &error))?;
    Ok(fd.as_fd())
}

pub(crate) fn attach(bpf: &mut Ebpf, [program, group, name]: [&str; 3]) -> Result<Link, Error> {
    let link = match bpf.program_mut(program) {
        Some(Program::RawTracePoint(program)) => program
            .attach(name)
            .and_then(|id| program.take_link(id))
            .map(|_link| Link::Raw { _link }),
        Some(Program::BtfTracePoint(program)) => program
            .attach()
            .and_then(|id| program.take_link(id))
            .map(|_link| Link::Typed { _link }),
        Some(Program::TracePoint(program)) => program
            .attach(group, name)
            .and_then(|id| program.take_link(id))
            .map(|_link| Link::Classic { _link }),
        _ => return Err(no_part(program)),
    };
    link.map_err(|error| no_tracepoint(group, name, &error))
}

pub(crate) fn tracefs() -> Result<PathBuf, Error> {
    match Tracefs::detect() {
        Tracefs::Readable(root) => Ok(root),
        Tracefs::Unreadable(_) => Err(Error::NoTracefs { is_mounted: true }),
        Tracefs::NotMounted => Err(Error::NoTracefs { is_mounted: false }),
    }
}

pub(crate) fn array_fd<'a>(bpf: &'a Ebpf, name: &str) -> Result<BorrowedFd<'a>, Error> {
    match map(bpf, name)? {
        Map::Array(data) | Map::PerfEventArray(data) => Ok(data.fd().as_fd()),
        _ => Err(no_part(name)),
    }
}

pub(crate) fn all(bpf: &Ebpf) -> impl Iterator<Item = &Program> {
    bpf.programs().map(|(_, program)| program)
}

pub(crate) fn map<'a>(bpf: &'a Ebpf, name: &str) -> Result<&'a Map, Error> {
    bpf.map(name).ok_or_else(|| no_part(name))
}

pub(crate) fn typed_map<'a, M>(bpf: &'a Ebpf, name: &str, what: &str) -> Result<M, Error>
where
    M: TryFrom<&'a Map, Error = MapError>,
{
    M::try_from(map(bpf, name)?).map_err(|error| bpf_refusal(what, &error))
}

pub(crate) fn typed_map_mut<'a, M>(bpf: &'a mut Ebpf, name: &str, what: &str) -> Result<M, Error>
where
    M: TryFrom<&'a mut Map, Error = MapError>,
{
    let map = bpf.map_mut(name).ok_or_else(|| no_part(name))?;
    M::try_from(map).map_err(|error| bpf_refusal(what, &error))
}

pub(crate) fn times<Words: Pod>(
    bpf: &Ebpf,
    runs: impl Fn(Words) -> [u64; 2],
) -> Result<ProgramTimes, Error> {
    let mut sum = ProgramTimes::default();
    for [runs, run_ns] in cpus(bpf)?.into_iter().map(runs) {
        sum.runs += runs;
        sum.run_ns += run_ns;
    }
    Ok(sum)
}

pub(crate) fn times_of_all(bpf: &Ebpf) -> ProgramTimes {
    let infos = all(bpf).filter_map(|program| program.info().ok());
    let mut sum = ProgramTimes::default();
    for info in infos {
        sum.runs += info.run_count();
        sum.run_ns += info.run_time().as_nanos() as u64;
    }
    sum
}

pub(crate) fn first_word(bpf: &Ebpf) -> u32 {
    let words = bpf.map(".bss");
    let words = words.and_then(|map| Array::<_, u32>::try_from(map).ok());
    words.and_then(|words| words.get(&0, 0).ok()).unwrap_or(0)
}

/// Returns how many events were dropped, by reason. The last count is [`missed`].
pub(crate) fn drops<const WORDS: usize>(bpf: &Ebpf) -> Result<[u64; WORDS], Error> {
    let failed = |error| bpf_refusal("read the drops", &error);
    let drops: PerCpuArray<_, u64> = typed_map(bpf, "drops", "read the drops")?;
    let mut counts = [all(bpf).map(missed).sum(); WORDS];
    for (reason, count) in (0..WORDS as u32 - 1).zip(&mut counts) {
        *count = drops.get(&reason, 0).map_err(failed)?.iter().sum();
    }
    Ok(counts)
}

pub(crate) fn cpus<Words: Pod>(bpf: &Ebpf) -> Result<Vec<Words>, Error> {
    let failed = |error| bpf_refusal("read the run times of the programs", &error);
    let cpus = PerCpuArray::<_, Words>::try_from(map(bpf, "cpus")?).map_err(failed)?;
    Ok(cpus.get(&0, 0).map_err(failed)?.to_vec())
}

/// Returns how often the kernel did not run a program, because another already ran on that CPU.
pub(crate) fn missed(program: &Program) -> u64 {
    let Ok(fd) = program.fd() else {
        return 0;
    };
    let about = tiptoe_sys::host::bpf::program_facts(fd.as_fd());
    about.map_or(0, |facts| facts.recursion_misses)
}

pub(crate) fn no_part(name: &str) -> Error {
    Error::Io {
        what: format!("the BPF object has no `{name}`"),
        source: std::io::ErrorKind::NotFound.into(),
    }
}

pub(crate) fn histogram(zero_count: u64, buckets: &[u32; HISTOGRAM_BUCKETS]) -> Histogram {
    let mut times = Histogram::default();
    times.add_counts(zero_count, &buckets.map(u64::from));
    times
}
