//! Breakpoints that the agent (tiptoe's library) opens in the program's threads.

use std::io;

use tiptoe_attach::link::Link;
use tiptoe_kernel::Error as KernelError;
use tiptoe_sys::host::perf::CountedOn;
use tiptoe_wire::hits::{AsyncRequest, Hits};
use tiptoe_wire::{Request, WatchTarget};

use super::TracedProcess;
use crate::error::Error;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmedThreads {
    pub threads: u32,
    /// Threads that started while breakpoints were opened.
    pub late: u32,
}

impl TracedProcess {
    fn put(&self, words: impl Iterator<Item = u64>) -> Result<&Link, Error> {
        let link = match self.presence.left.get() {
            None => self.link()?,
            Some(_) => return Err(Error::AgentLeft),
        };
        for (index, word) in words.enumerate() {
            link.plan().put_address(index, word);
        }
        Ok(link)
    }

    pub fn hits(&self) -> Option<Hits<'_>> {
        let link = self.target.link.as_ref()?;
        link.data().hits()
    }

    pub fn observe(&self, cpus: u32, watched: &[WatchTarget]) -> Result<ArmedThreads, Error> {
        let words = watched.iter().flat_map(WatchTarget::words);
        let link = self.put([cpus.into()].into_iter().chain(words))?;
        let answer = link.ask(Request::Observe, watched.len());
        match (answer, link.data().outcome()) {
            (Ok(()), _) => Ok(opened(link)),
            (Err(error), 0) => Err(error.into()),
            (Err(_), errno) => Err(refused(errno as i32, link.data().result(2) as u32, watched)),
        }
    }

    pub fn ask(&self, what: AsyncRequest) {
        if let (Some(link), Some(hits)) = (&self.target.link, self.hits()) {
            hits.ask(what);
            link.wake();
        }
    }

    pub fn turn(&self, number: usize, watched: WatchTarget) -> Result<(), Error> {
        let link = self.put([number as u64].into_iter().chain(watched.words()))?;
        Ok(link.ask(Request::Turn, 1)?)
    }
}

fn opened(link: &Link) -> ArmedThreads {
    let [threads, late] = [0, 1].map(|index| link.data().result(index) as u32);
    ArmedThreads { threads, late }
}

fn refused(errno: i32, tid: u32, watched: &[WatchTarget]) -> Error {
    match errno {
        libc::ENOSPC => crate::watch::explain(KernelError::NoSlot {
            on: CountedOn::Thread(tid),
        }),
        libc::EACCES | libc::EPERM => Error::BreakpointsDenied,
        libc::EMFILE | libc::ENFILE => Error::BreakpointFiles(watched.len()),
        libc::EAGAIN => Error::ThreadsTooFast,
        libc::EINVAL => Error::BreakpointsRefused,
        libc::ENODEV | libc::ENOENT | libc::EOPNOTSUPP => KernelError::NoBreakpoints.into(),
        _ => Error::NoBreakpoints(io::Error::from_raw_os_error(errno)),
    }
}
