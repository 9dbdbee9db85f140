//! A thread that receives the BPF programs' reports.

use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use tiptoe_sys::host::ends::wait_to_read;

use super::cgroups_layout::CgroupChange;
use super::flush::Flush;
use crate::Error;
use crate::programs::Ring;

/// Dropping this ends the thread, which first reads all reports.
#[derive(Debug)]
pub(super) struct Follower {
    changes: Receiver<(Instant, CgroupChange)>,
    ends: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    pub(super) fn start(ring: Ring, flush: Arc<Flush>) -> Result<Follower, Error> {
        let (to_caller, changes) = channel();
        let (is_over, ends) = pipe().map_err(Error::io("make a pipe"))?;
        let thread = std::thread::spawn(move || follow(ring, &flush, &to_caller, &is_over));
        Ok(Follower {
            changes,
            ends: Some(ends),
            thread: Some(thread),
        })
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = (Instant, CgroupChange)> {
        self.changes.try_iter()
    }

    pub(super) fn end(mut self) -> Vec<(Instant, CgroupChange)> {
        self.join();
        self.changes.try_iter().collect()
    }

    fn join(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            // Nothing in the thread panics.
            let _ = thread.join();
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.join();
    }
}

fn follow(
    mut ring: Ring,
    flush: &Flush,
    to_caller: &Sender<(Instant, CgroupChange)>,
    is_over: &PipeReader,
) {
    loop {
        let [_, is_over] = wait_to_read([ring.0.as_fd(), is_over.as_fd()]);
        let mut has_moved = false;
        for change in ring.read(CgroupChange::read) {
            if change == CgroupChange::Moved {
                has_moved = true;
            } else if to_caller.send((Instant::now(), change)).is_err() {
                return;
            }
        }
        if is_over {
            return;
        }
        if has_moved {
            // If this fails, the next reading charges the tasks.
            let _ = flush.now();
        }
    }
}
