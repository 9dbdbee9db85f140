//! Probes counted thread by thread: one perf event per probe and thread.
//!
//! Opening is quick, but closing waits for the kernel about 80 ms an event, one
//! after the other (measured on Linux 6.18): for a handful of probes only.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;

use tiptoe_sys::host::limits::reserve_open_files;
use tiptoe_sys::host::perf::{On, PerfEvent, Uprobe, uprobe_pmu};

use crate::uprobes::{errno, refusal};
use crate::{Error, KernelProbe, Refused};

#[derive(Debug)]
pub(crate) struct ThreadProbes {
    threads: Vec<u32>,
    /// For each probe its events, one per thread.
    events: Vec<Vec<PerfEvent>>,
}

impl ThreadProbes {
    pub(crate) fn open(
        threads: &[u32],
        probes: &[KernelProbe],
    ) -> Result<(Self, Vec<Refused>), Error> {
        let pmu = uprobe_pmu().ok_or(Error::Unsupported)?;
        reserve_open_files(threads.len() as u64 * probes.len() as u64)?;
        let mut refused = Vec::new();
        let mut events = Vec::with_capacity(probes.len());
        for (index, probe) in probes.iter().enumerate() {
            events.push(arm(pmu, threads, probe).or_else(|error| {
                if !error.is_of_one_probe() {
                    return Err(error);
                }
                refused.push(Refused {
                    probe: index,
                    error,
                });
                Ok(Vec::new())
            })?);
        }
        if refused.len() < probes.len() && events.iter().all(Vec::is_empty) {
            return Err(Error::NoSuchThread);
        }
        let threads = threads.to_vec();
        Ok((Self { threads, events }, refused))
    }

    pub(crate) fn threads(&self) -> &[u32] {
        &self.threads
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u64>> {
        self.events.iter().map(|events| sum(events)).collect()
    }
}

fn arm(pmu: u32, threads: &[u32], probe: &KernelProbe) -> Result<Vec<PerfEvent>, Error> {
    let path = CString::new(probe.path.as_os_str().as_bytes()).map_err(|_| Error::NoSuchFile {
        path: probe.path.clone(),
    })?;
    let uprobe = Uprobe {
        pmu,
        path: &path,
        offset: probe.offset,
    };
    let mut events = Vec::with_capacity(threads.len());
    for tid in threads {
        match PerfEvent::open_uprobe(&uprobe, On::Thread(*tid)) {
            Ok(event) => events.push(event),
            // It ended since it was listed: it hits nothing any more.
            Err(e) if e.raw_os_error() == Some(errno::ESRCH) => {}
            Err(e) => return Err(refusal(e, probe)),
        }
    }
    Ok(events)
}

fn sum(events: &[PerfEvent]) -> io::Result<u64> {
    events.iter().map(|event| Ok(event.read()?.count)).sum()
}
