//! Putting a program back without its agent, whose thread a filter of the program's covers: its next system call might be
//! the program's last. It sleeps for good then, and the program's bytes are written from outside while all threads stand
//! still.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use tiptoe_wire::{Site, SiteFlags};

use super::Tracee;
use crate::inject::Masks;
use crate::link::Link;
use crate::resident::agent_thread;

/// Bytes of the jump that a short jump leads to.
const ISLAND: usize = 5;

impl Tracee {
    /// What the agent has of the program's signals, with its thread as it is known now: where the program changed its user
    /// or its namespaces it is another one than before.
    pub(super) fn masks_now(&self, link: &Link) -> Option<Masks> {
        let spare = agent_thread(self.process, link.data().thread());
        self.masks
            .filter(|_| spare.is_some())
            .map(|masks| Masks { spare, ..masks })
    }

    /// Puts the program back, as far as its threads can be stopped.
    pub(super) fn put_back(&self, link: &Link) {
        link.silence();
        let path = format!("/proc/{}/mem", self.process.pid());
        let Ok(memory) = File::options().read(true).write(true).open(&path) else {
            return;
        };
        // The threads are held only if they run this program still, whose memory was opened before.
        if self.runs_another_program() {
            return;
        }
        let sites = &self.later.known;
        let restore = || {
            let sites = sites.iter();
            let sites = sites.filter(|site| !site.flags.has(SiteFlags::STAYS));
            // What is not mapped any more has no bytes to be put back.
            sites.for_each(|site| drop(restore(&memory, site)));
        };
        if let Some(masks) = self.masks_now(link) {
            let _ = masks.give_back(restore);
        }
    }
}

/// Puts the bytes of a site back where they are ours.
fn restore(memory: &File, site: &Site) -> io::Result<()> {
    let len = usize::from(site.len).min(site.original.len());
    restore_at(
        memory,
        site.address,
        (&site.patched[..len], &site.original[..len]),
    )?;
    if site.island == 0 {
        return Ok(());
    }
    let island = (
        &site.island_patched[..ISLAND],
        &site.island_original[..ISLAND],
    );
    restore_at(memory, site.island, island)
}

fn restore_at(memory: &File, at: u64, (patched, original): (&[u8], &[u8])) -> io::Result<()> {
    let mut now = [0; 8];
    let now = &mut now[..patched.len()];
    memory.read_exact_at(now, at)?;
    if now == patched {
        memory.write_all_at(original, at)?;
    }
    Ok(())
}
