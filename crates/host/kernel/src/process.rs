//! Probes counted for a whole process, by one BPF program.
//!
//! One link arms many places of one file, all of them or none. Where the kernel
//! refuses a list, its halves are tried, until the places that it will not take
//! stand alone. Arming and disarming a list costs milliseconds, most of it
//! waiting, so lists are short enough that one bad place spoils little.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tiptoe_sys::host::Process;
use tiptoe_sys::host::bpf::{UprobeCounters, UprobeLink, UprobeTarget};

use crate::uprobes::refusal;
use crate::{Error, KernelProbe, Refused};

/// Places in one link.
const LIST: usize = 128;

#[derive(Debug)]
pub(crate) struct ProcessProbes {
    counters: UprobeCounters,
    _links: Vec<UprobeLink>,
}

/// What is needed while linking; `refused` and `links` are its results.
struct Linker<'a> {
    counters: &'a UprobeCounters,
    process: Process,
    probes: &'a [KernelProbe],
    links: Vec<UprobeLink>,
    refused: Vec<Refused>,
}

impl ProcessProbes {
    pub(crate) fn open(
        counters: UprobeCounters,
        process: Process,
        probes: &[KernelProbe],
    ) -> Result<(Self, Vec<Refused>), Error> {
        let mut linker = Linker {
            counters: &counters,
            process,
            probes,
            links: Vec::new(),
            refused: Vec::new(),
        };
        for (path, indices) in by_file(probes) {
            match CString::new(path.as_os_str().as_bytes()) {
                Ok(path) => linker.link_all(&path, &indices)?,
                Err(_) => linker.refuse_all(&indices),
            }
        }
        let Linker {
            links: _links,
            mut refused,
            ..
        } = linker;
        refused.sort_by_key(|r| r.probe);
        Ok((Self { counters, _links }, refused))
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u64>> {
        self.counters.read()
    }
}

impl Linker<'_> {
    fn link_all(&mut self, path: &CStr, indices: &[u64]) -> Result<(), Error> {
        let mut lists = indices.chunks(LIST);
        lists.try_for_each(|list| self.link(path, list))
    }

    fn link(&mut self, path: &CStr, indices: &[u64]) -> Result<(), Error> {
        let probe = |index: &u64| &self.probes[*index as usize];
        let offsets: Vec<u64> = indices.iter().map(|index| probe(index).offset).collect();
        let place = UprobeTarget {
            path,
            pid: self.process.pid(),
            offsets: &offsets,
            cookies: indices,
        };
        let Err(error) = self.counters.link(&place).map(|link| self.links.push(link)) else {
            return Ok(());
        };
        let error = refusal(error, probe(&indices[0]));
        match indices {
            _ if !error.is_of_one_probe() => Err(error),
            [index] => {
                self.refuse(*index, error);
                Ok(())
            }
            _ => {
                let (first, second) = indices.split_at(indices.len() / 2);
                self.link(path, first)?;
                self.link(path, second)
            }
        }
    }

    fn refuse_all(&mut self, indices: &[u64]) {
        for index in indices {
            let path = self.probes[*index as usize].path.clone();
            self.refuse(*index, Error::NoSuchFile { path });
        }
    }

    fn refuse(&mut self, index: u64, error: Error) {
        self.refused.push(Refused {
            probe: index as usize,
            error,
        });
    }
}

/// The indices of the probes in each file.
fn by_file(probes: &[KernelProbe]) -> BTreeMap<&Path, Vec<u64>> {
    let mut files = BTreeMap::<_, Vec<_>>::new();
    for (index, probe) in probes.iter().enumerate() {
        files.entry(&*probe.path).or_default().push(index as u64);
    }
    files
}
