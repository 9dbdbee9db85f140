//! Counts for processes by the fields in which the kernel counts what each task does (`bpf/process_tasks.bpf.c`).
//!
//! Nothing runs at context switches, where perf's events of a process cost 1 to 3 us. BPF programs run when any task of
//! the machine begins or ends, and over all tasks when tiptoe reads the counts. The kernel adds to a running task's
//! time at each tick, so that of a running task is up to a tick old.

use aya::maps::{Array, HashMap};
use aya::{Btf, Ebpf};
use tiptoe_sys::host::bpf::MappedArray;
use tiptoe_sys::host::capabilities::in_first_pid_namespace;
use tiptoe_sys::raw::monotonic_ns;

use crate::Error;
use crate::cgroups::{
    ALL_TASKS, BORN, CountFaults, ENDED, ENDING, Flush, LINE, ROUND, TaskLine, Times,
    load_iterator, most_tasks,
};
use crate::counters::CountTarget;
use crate::programs::{self, Link, array_fd, attach, load_typed, typed_map, typed_map_mut};
use crate::refusal::bpf_refusal;

const PROGRAMS: &[u8] = aya::include_bytes_aligned!("../bpf/process_tasks.bpf.o");
const LOAD: &str = "load the BPF programs that count for processes";
/// The words of a record of the map `known`.
const KNOWN: usize = 7;
const RENAMED: [&str; 3] = ["renamed", "task", "task_rename"];
const SWITCHED: [&str; 3] = ["switched", "sched", "sched_switch"];

/// Counts for processes and what they start.
#[derive(Debug)]
pub struct ProcessTasks {
    bpf: Ebpf,
    flush: Flush,
    line: MappedArray,
    pids: Vec<u32>,
    is_command: bool,
    links: Vec<Link>,
    /// What runs at each switch and renaming of the machine's tasks, until a command's exec.
    until_exec: Vec<Link>,
    ending: Option<Link>,
    unended: u64,
    missed_before: u64,
}

impl ProcessTasks {
    /// Prepares to count; `None` if this cannot count the target. A command counts from its exec on, and
    /// [`ProcessTasks::start`] must be called before that.
    pub fn load(target: &CountTarget) -> Result<Option<ProcessTasks>, Error> {
        let Some((pids, is_command)) = processes(target) else {
            return Ok(None);
        };
        // In a container's PID namespace a round over all tasks misses some, and ids are others than the kernel's.
        if !in_first_pid_namespace() {
            return Ok(None);
        }
        let btf = Btf::from_sys_fs().map_err(|_| Error::NoBtf)?;
        let mut bpf = aya::EbpfLoader::new()
            .btf(Some(&btf))
            .map_max_entries("known", most_tasks())
            .map_max_entries("wanted", pids.len() as u32)
            .load(PROGRAMS)
            .map_err(|error| bpf_refusal(LOAD, &error))?;
        load_iterator(&mut bpf, ALL_TASKS, &btf)?;
        for place in [BORN, ENDING, ENDED, SWITCHED, RENAMED] {
            load_typed(&mut bpf, place, &btf, LOAD)?;
        }
        let line = MappedArray::new(array_fd(&bpf, "lines")?, LINE);
        Ok(Some(ProcessTasks {
            flush: Flush::of(&bpf)?,
            line: line.map_err(Error::io("map the BPF array `lines`"))?,
            bpf,
            pids,
            is_command,
            links: Vec::new(),
            until_exec: Vec::new(),
            ending: None,
            unended: 0,
            missed_before: 0,
        }))
    }

    /// Prepares to count another target after [`ProcessTasks::stop`], in a tenth of the time that loading takes.
    pub fn reset(&mut self, target: &CountTarget) -> Result<(), Error> {
        let failed = |error| bpf_refusal(LOAD, &error);
        let mut known: HashMap<_, u64, [u64; KNOWN]> = typed_map_mut(&mut self.bpf, "known", LOAD)?;
        let tasks: Vec<u64> = known.keys().flatten().collect();
        for task in tasks {
            // A task may end at this moment.
            let _ = known.remove(&task);
        }
        let mut lines: Array<_, [u64; LINE]> = typed_map_mut(&mut self.bpf, "lines", LOAD)?;
        lines.set(0, [0; LINE], 0).map_err(failed)?;
        let mut rounds: Array<_, [u64; ROUND]> = typed_map_mut(&mut self.bpf, "rounds", LOAD)?;
        rounds.set(0, [0; ROUND], 0).map_err(failed)?;
        self.flush = Flush::of(&self.bpf)?;
        self.missed_before = self.missed();
        (self.pids, self.is_command) = processes(target).unwrap_or_default();
        Ok(())
    }

    /// Starts counting.
    pub fn start(&mut self) -> Result<(), Error> {
        if !self.is_command {
            self.want(true)?;
        }
        for place in [BORN, ENDED] {
            self.links.push(attach(&mut self.bpf, place)?);
        }
        self.ending = Some(attach(&mut self.bpf, ENDING)?);
        let mut begun: Array<_, u64> = typed_map_mut(&mut self.bpf, "begun", LOAD)?;
        let set = begun.set(0, monotonic_ns(), 0);
        set.map_err(|error| bpf_refusal(LOAD, &error))?;
        self.flush.now()?;
        if self.is_command {
            for place in [RENAMED, SWITCHED] {
                self.until_exec.push(attach(&mut self.bpf, place)?);
            }
        }
        self.want(self.is_command)
    }

    /// Ends what runs at switches once a command has called exec.
    pub fn tidy(&mut self) -> Result<(), Error> {
        if !self.until_exec.is_empty() {
            let wanted: HashMap<_, u32, u32> = typed_map(&self.bpf, "wanted", LOAD)?;
            if wanted.keys().next().is_none() {
                self.until_exec.clear();
            }
        }
        Ok(())
    }

    /// Sets whether tasks of the processes are recorded when a program finds them.
    fn want(&mut self, is_wanted: bool) -> Result<(), Error> {
        let mut wanted: HashMap<_, u32, u32> = typed_map_mut(&mut self.bpf, "wanted", LOAD)?;
        for pid in &self.pids {
            let done = match is_wanted {
                true => wanted.insert(pid, 1, 0),
                false => wanted.remove(pid),
            };
            done.map_err(|error| bpf_refusal(LOAD, &error))?;
        }
        Ok(())
    }

    /// Returns the counts so far.
    pub fn read(&self) -> Result<TaskLine, Error> {
        if !self.links.is_empty() {
            self.flush.now()?;
        }
        Ok(zerocopy::transmute!(self.line.words::<LINE>(0)))
    }

    /// Ends counting; counts stay readable.
    pub fn stop(&mut self) -> Result<(), Error> {
        // `last` must not wait for tasks that end from now on.
        self.ending = None;
        self.unended = self.flush.last()?;
        self.links.clear();
        self.until_exec.clear();
        Ok(())
    }

    /// Returns what may be wrong with the counts, and the programs' time.
    pub fn checks(&self) -> (CountFaults, Times) {
        let (mut checks, mut times) = Default::default();
        self.flush.add(&mut checks, &mut times);
        checks.unended = self.unended;
        checks.missed = self.missed() - self.missed_before;
        (checks, times)
    }

    fn missed(&self) -> u64 {
        programs::all(&self.bpf).map(programs::missed).sum()
    }
}

fn processes(target: &CountTarget) -> Option<(Vec<u32>, bool)> {
    match target {
        CountTarget::AtExec(pid) => Some((vec![*pid], true)),
        CountTarget::Processes(pids) => Some((pids.clone(), false)),
        CountTarget::Cpus(_) | CountTarget::Cgroup(_) | CountTarget::Threads(_) => None,
    }
}
