//! Restores a program's code without the agent (tiptoe's library). A seccomp filter covers the agent's thread, and
//! would kill the program at that thread's next system call. So the thread sleeps forever, and tiptoe restores the
//! code from outside while all threads are stopped.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use tiptoe_attach::link::Link;
use tiptoe_wire::{Site, SiteFlags};

use super::TracedProcess;

/// The length of the jump in an island, the padding to which the short jump of a site (patched place) leads.
const ISLAND: usize = 5;

impl TracedProcess {
    /// Does nothing if the threads cannot be stopped.
    pub(super) fn put_back(&self, link: &Link, sites: &[Site]) {
        link.silence();
        let path = format!("/proc/{}/mem", self.target.process.pid());
        let Ok(memory) = File::options().read(true).write(true).open(&path) else {
            return;
        };
        // The opened memory must be that of the program whose threads `give_back` stops; an exec may have replaced it.
        if self.runs_another_program() {
            return;
        }
        let restore = || {
            let sites = sites.iter();
            let sites = sites.filter(|site| !site.flags.has(SiteFlags::STAYS));
            // A failure means that the site is not mapped any more.
            sites.for_each(|site| drop(restore(&memory, site)));
        };
        if let Some(masks) = self.presence.masks_now(self.target.process, link) {
            let _ = masks.give_back(restore);
        }
    }
}

fn restore(memory: &File, site: &Site) -> io::Result<()> {
    let len = usize::from(site.len).min(site.original.len());
    restore_at(
        memory,
        site.address,
        &site.patched[..len],
        &site.original[..len],
    )?;
    if site.island == 0 {
        return Ok(());
    }
    let (patched, original) = (&site.island_patched, &site.island_original);
    restore_at(memory, site.island, &patched[..ISLAND], &original[..ISLAND])
}

fn restore_at(memory: &File, at: u64, patched: &[u8], original: &[u8]) -> io::Result<()> {
    let mut now = [0; 8];
    let now = &mut now[..patched.len()];
    memory.read_exact_at(now, at)?;
    if now == patched {
        memory.write_all_at(original, at)?;
    }
    Ok(())
}
