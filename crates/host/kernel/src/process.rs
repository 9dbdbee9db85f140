//! Counts hits of uprobes in a whole process, with one BPF program.
//!
//! A *link* is a kernel object that arms a list of places in one file, or none of them if the kernel refuses one.
//! tiptoe halves a refused list until each refused place is alone.
//!
//! To disarm one place, tiptoe closes the list's link and links the other places again, in about 15 ms. If a set has
//! at most [`ALONE`] places, each has a link of its own.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tiptoe_sys::host::bpf::{UprobeCounters, UprobeLink, UprobeTarget};
use tiptoe_sys::host::{Process, attach_progress};

use crate::Error;
use crate::closing::Closing;
use crate::kernel_probe::{KernelProbe, RefusedProbe, refusal};

const LIST: usize = 128;
const ALONE: usize = 32;

#[derive(Debug)]
pub(crate) struct ProcessProbes {
    counters: UprobeCounters,
    process: Process,
    links: Vec<OpenLink>,
}

#[derive(Debug)]
struct OpenLink {
    places: Vec<u64>,
    link: UprobeLink,
}

struct Linker<'a> {
    counters: &'a UprobeCounters,
    process: Process,
    probes: &'a [KernelProbe],
    links: Vec<OpenLink>,
    refused: Vec<RefusedProbe>,
}

impl ProcessProbes {
    pub(crate) fn open(
        counters: UprobeCounters,
        process: Process,
        probes: &[KernelProbe],
    ) -> Result<(Self, Vec<RefusedProbe>), Error> {
        let mut linker = Linker::new(&counters, process, probes);
        attach_progress::begin(probes.len());
        linker.link_by_file(0..probes.len() as u64)?;
        let Linker {
            links, mut refused, ..
        } = linker;
        refused.sort_by_key(|r| r.probe);
        let this = Self {
            counters,
            process,
            links,
        };
        Ok((this, refused))
    }

    /// Closes the links of these places. Arms the links' other places again and returns these other places, which did
    /// not count meanwhile.
    pub(crate) fn close(
        &mut self,
        probes: &[KernelProbe],
        places: &[usize],
        closing: &mut Closing,
    ) -> Vec<usize> {
        let is_given = |place: &u64| places.contains(&(*place as usize));
        let (hit, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.links)
            .into_iter()
            .partition(|linked| linked.places.iter().any(is_given));
        self.links = kept;
        let mut others = Vec::new();
        for OpenLink { places, link } in hit {
            closing.close(link);
            others.extend(places.into_iter().filter(|place| !is_given(place)));
        }
        self.open_again(probes, &others);
        others.into_iter().map(|place| place as usize).collect()
    }

    /// Returns whether all are armed.
    pub(crate) fn open_again(&mut self, probes: &[KernelProbe], places: &[u64]) -> bool {
        let mut linker = Linker::new(&self.counters, self.process, probes);
        let linked = linker.link_by_file(places.iter().copied());
        let all = linked.is_ok() && linker.refused.is_empty();
        let Linker { links, .. } = linker;
        self.links.extend(links);
        all
    }

    pub(crate) fn is_open(&self, place: usize) -> bool {
        let mut places = self.links.iter().flat_map(|linked| &linked.places);
        places.any(|open| *open == place as u64)
    }

    pub(crate) fn close_all(&mut self, closing: &mut Closing) {
        for linked in self.links.drain(..) {
            closing.close(linked.link);
        }
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u64>> {
        self.counters.read()
    }
}

impl<'a> Linker<'a> {
    fn new(counters: &'a UprobeCounters, process: Process, probes: &'a [KernelProbe]) -> Self {
        Linker {
            counters,
            process,
            probes,
            links: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn link_by_file(&mut self, places: impl Iterator<Item = u64>) -> Result<(), Error> {
        let list = if self.probes.len() <= ALONE { 1 } else { LIST };
        for (path, indices) in by_file(self.probes, places) {
            match CString::new(path.as_os_str().as_bytes()) {
                Ok(path) => self.link_all(&path, &indices, list)?,
                Err(_) => {
                    for index in indices {
                        let path = path.to_owned();
                        self.refuse(index, Error::NoSuchFile { path });
                    }
                }
            }
        }
        Ok(())
    }

    fn link_all(&mut self, path: &CStr, indices: &[u64], list: usize) -> Result<(), Error> {
        for list in indices.chunks(list) {
            if attach_progress::is_broken_off() {
                list.iter()
                    .for_each(|index| self.refuse(*index, Error::BrokenOff));
                continue;
            }
            self.link(path, list)?;
        }
        Ok(())
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
        let error = match self.counters.link(&place) {
            Ok(link) => {
                let places = indices.to_vec();
                self.links.push(OpenLink { places, link });
                attach_progress::advance(indices.len());
                return Ok(());
            }
            Err(error) => error,
        };
        let error = refusal(error, probe(&indices[0]));
        match indices {
            _ if !error.is_of_one_probe() => Err(error),
            [index] => {
                attach_progress::advance(1);
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

    fn refuse(&mut self, index: u64, error: Error) {
        self.refused.push(RefusedProbe {
            probe: index as usize,
            error,
        });
    }
}

fn by_file(probes: &[KernelProbe], places: impl Iterator<Item = u64>) -> BTreeMap<&Path, Vec<u64>> {
    let mut files = BTreeMap::<_, Vec<_>>::new();
    for place in places {
        if let Some(probe) = probes.get(place as usize) {
            files.entry(&*probe.path).or_default().push(place);
        }
    }
    files
}
