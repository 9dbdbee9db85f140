//! Counts hits of uprobes with a perf event per probe and thread, which suits few probes. To pause a probe, its
//! events must be closed, because a disabled event still traps.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;

use tiptoe_sys::host::attach_progress;
use tiptoe_sys::host::limits::reserve_open_files;
use tiptoe_sys::host::perf::{CountedOn, PerfEvent, Uprobe, uprobe_pmu};

use crate::Error;
use crate::closing::Closing;
use crate::kernel_probe::{KernelProbe, RefusedProbe, errno, refusal};

#[derive(Debug)]
pub(crate) struct ThreadProbes {
    pmu: u32,
    pub(crate) threads: Vec<u32>,
    events: Vec<Vec<PerfEvent>>,
    before: Vec<u64>,
}

impl ThreadProbes {
    pub(crate) fn open(
        threads: &[u32],
        probes: &[KernelProbe],
    ) -> Result<(Self, Vec<RefusedProbe>), Error> {
        let pmu = uprobe_pmu().ok_or(Error::Unsupported)?;
        reserve_open_files(threads.len() as u64 * probes.len() as u64)?;
        let mut refused = Vec::new();
        let mut events = Vec::with_capacity(probes.len());
        attach_progress::begin(probes.len());
        for (index, probe) in probes.iter().enumerate() {
            attach_progress::advance(1);
            let armed = match attach_progress::is_broken_off() {
                true => Err(Error::BrokenOff),
                false => arm(pmu, threads, probe),
            };
            events.push(armed.or_else(|error| {
                if !error.is_of_one_probe() {
                    return Err(error);
                }
                refused.push(RefusedProbe {
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
        let this = Self {
            pmu,
            threads,
            events,
            before: vec![0; probes.len()],
        };
        Ok((this, refused))
    }

    pub(crate) fn close(&mut self, places: &[usize], closing: &mut Closing) {
        for place in places {
            let Some(events) = self.events.get_mut(*place) else {
                continue;
            };
            self.before[*place] += sum(events).unwrap_or(0);
            // All are closed now, because the breakpoint stays until the last event is closed.
            events.drain(..).for_each(|event| closing.close(event));
        }
    }

    /// Arms a closed place in living threads.
    pub(crate) fn open_again(
        &mut self,
        probes: &[KernelProbe],
        place: usize,
        alive: &[u32],
    ) -> bool {
        let still = self.threads.iter().filter(|tid| alive.contains(tid));
        let still: Vec<u32> = still.copied().collect();
        match (probes.get(place), self.events.get_mut(place)) {
            (Some(probe), Some(events)) => {
                *events = arm(self.pmu, &still, probe).unwrap_or_default();
                !events.is_empty()
            }
            _ => false,
        }
    }

    pub(crate) fn close_all(&mut self, closing: &mut Closing) {
        let all: Vec<usize> = (0..self.events.len()).collect();
        self.close(&all, closing);
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u64>> {
        let all = self.events.iter().zip(&self.before);
        all.map(|(events, before)| Ok(sum(events)? + before))
            .collect()
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
        match PerfEvent::open_uprobe(&uprobe, CountedOn::Thread(*tid)) {
            Ok(event) => events.push(event),
            // The thread has ended, so it hits nothing.
            Err(e) if e.raw_os_error() == Some(errno::ESRCH) => {}
            Err(e) => return Err(refusal(e, probe)),
        }
    }
    Ok(events)
}

fn sum(events: &[PerfEvent]) -> io::Result<u64> {
    events.iter().map(|event| Ok(event.read()?.count)).sum()
}
