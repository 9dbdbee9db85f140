//! Breakpoints that the agent opens in the program's threads.

use std::io;

use tiptoe_attach::link::Link;
use tiptoe_kernel::Error as KernelError;
use tiptoe_sys::host::perf::CountedOn;
use tiptoe_wire::hits::{AsyncRequest, Hits, WORDS};
use tiptoe_wire::{Request, WatchTarget};

use super::Tracee;
use crate::request::Error;

/// The result of opening breakpoints for threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmedThreads {
    /// The number of threads that have breakpoints.
    pub threads: u32,
    /// The number of these that started while breakpoints were opened.
    pub late: u32,
}

impl Tracee {
    fn watching(&self) -> Result<&Link, Error> {
        let gone = || Error::new("the agent is not in the process any more");
        self.target
            .link
            .as_ref()
            .filter(|_| self.presence.left.get().is_none())
            .ok_or_else(gone)
    }

    pub fn hits(&self) -> Option<Hits<'_>> {
        let link = self.target.link.as_ref()?;
        Hits::new(link.data().slab_words(0, slot(link), WORDS)?)
    }

    /// Opens breakpoints for all threads, also for those that start later.
    pub fn observe(&self, cpus: u32, watched: &[WatchTarget]) -> Result<ArmedThreads, Error> {
        let link = self.watching()?;
        let head = [u64::from(slot(link)), cpus.into()];
        let words = watched.iter().flat_map(WatchTarget::words);
        for (index, word) in head.into_iter().chain(words).enumerate() {
            link.plan().put_address(index, word);
        }
        let answer = link.ask(Request::Observe, watched.len());
        match (answer, link.data().outcome()) {
            (Ok(()), _) => Ok(opened(link)),
            (Err(error), 0) => Err(error.into()),
            (Err(_), errno) => Err(refused(errno as i32, link.data().result(2) as u32, watched)),
        }
    }

    /// Sends a request without waiting for its completion.
    pub fn ask(&self, what: AsyncRequest) {
        if let (Some(link), Some(hits)) = (&self.target.link, self.hits()) {
            hits.ask(what);
            link.wake();
        }
    }

    /// Makes a breakpoint watch another target.
    pub fn turn(&self, number: usize, watched: WatchTarget) -> Result<(), Error> {
        let link = self.watching()?;
        let words = [number as u64].into_iter().chain(watched.words());
        for (index, word) in words.enumerate() {
            link.plan().put_address(index, word);
        }
        Ok(link.ask(Request::Turn, 1)?)
    }
}

/// Returns the first slot of hits, which follow all other slots.
fn slot(link: &Link) -> u32 {
    link.geometry().slots.saturating_sub(WORDS)
}

fn opened(link: &Link) -> ArmedThreads {
    let [threads, late] = [0, 1].map(|index| link.data().result(index) as u32);
    ArmedThreads { threads, late }
}

/// Explains why the kernel refused a breakpoint to a thread.
fn refused(errno: i32, tid: u32, watched: &[WatchTarget]) -> Error {
    const OLD: &str = "breakpoints that raise signals need Linux 5.13 or later";
    let why = io::Error::from_raw_os_error(errno);
    match errno {
        libc::ENOSPC => crate::watch::explain(KernelError::NoSlot {
            on: CountedOn::Thread(tid),
        }),
        libc::EACCES | libc::EPERM => {
            let what = "the process may not have breakpoints of its own";
            Error::new(what).with_hint(
                "`sysctl kernel.perf_event_paranoid=2` as root allows it, or run tiptoe as root",
            )
        }
        libc::EMFILE | libc::ENFILE => {
            let what = format!(
                "the process may not open as many files as its threads need breakpoints: {} for each",
                watched.len()
            );
            Error::new(what)
                .with_hint("watch fewer variables, or raise its limit (`prlimit --nofile`)")
        }
        libc::EAGAIN => {
            let what = "the program starts threads faster than breakpoints can be opened for them";
            Error::new(what)
                .with_hint("run tiptoe as root: the kernel can follow them, `--via kernel`")
        }
        libc::EINVAL => Error::new("the kernel refused the breakpoints").with_hint(OLD),
        libc::ENODEV | libc::ENOENT | libc::EOPNOTSUPP => KernelError::NoBreakpoints.into(),
        _ => Error::new(format!("the agent could not set breakpoints: {why}")),
    }
}
