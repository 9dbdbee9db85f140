//! Watching the contended locks of one process.

use tiptoe_futex::walk::Frames;
use tiptoe_wire::Site;
use tiptoe_wire::futex::{UNSEEN, WIDTH};

use super::Tracee;
use super::arm::install;
use crate::counts;
use crate::link::Link;
use crate::module::{Cache, Module, from_sys};
use crate::planner::{self, Planned};
use crate::request::Error;
use crate::ulocks::{Names, Noted};

/// What is known of them.
#[derive(Default)]
pub struct Watched {
    sites: Vec<Site>,
    names: Option<Names>,
}

impl Tracee {
    /// Arms what tells of futex calls.
    pub(super) fn watch_locks(
        &mut self,
        link: &Link,
        planned: planner::Locks,
        lost: &[u64],
    ) -> Result<(), Error> {
        let mut left_out = planned.left_out;
        let shared = link.data().slab_words(0, link.lock_slot, WIDTH);
        if let Some(frames) = shared.map(Frames::new) {
            for (address, depth) in &planned.frames {
                // One that finds no room is taken for the user's.
                let _ = frames.insert(*address, *depth);
            }
        }
        let sites: Vec<&Planned> = planned.sites.iter().collect();
        let outcomes = install(link, &sites, lost)?;
        self.note_sites(planned.sites.iter(), lost);
        let told = planned.sites.iter().zip(outcomes);
        for (site, outcome) in told {
            match outcome {
                None => self.watched_locks.sites.push(site.site),
                Some(why) => left_out.push((format!("futex:{:#x}", site.site.address), why)),
            }
        }
        self.refused.extend(left_out);
        Ok(())
    }

    /// Looks what is mapped where, for names.
    pub fn look_for_names(&mut self, cache: &mut Cache) -> Result<(), Error> {
        let maps = self.process.maps().map_err(from_sys)?;
        let known = self.watched_locks.names.as_ref();
        if known.is_some_and(|names| names.maps == maps) {
            return Ok(());
        }
        let modules: Vec<Module> = cache.modules(self.process, &maps)?;
        let mut sites = self.watched_locks.sites.clone();
        sites.extend(self.later.known.iter().copied());
        self.watched_locks.names = Some(Names {
            modules,
            maps,
            sites,
        });
        Ok(())
    }

    /// What its threads noted; None where nobody watches.
    pub fn noted(&self) -> Result<Option<(Noted, &Names)>, Error> {
        let (Some(link), Some(names)) = (&self.link, &self.watched_locks.names) else {
            return Ok(None);
        };
        let mut noted = Noted::default();
        let slots = link.lock_slot..link.lock_slot + WIDTH;
        let each = |owner: Option<String>, words: &[u64]| match owner {
            Some(thread) => noted.add_thread(&thread, words),
            None => noted.add_unseen(words.get(UNSEEN as usize).copied().unwrap_or(0)),
        };
        let failed = |error: std::io::Error| Error::new(format!("cannot read the waits: {error}"));
        counts::each_slab(link.data_file(), link.geometry(), slots, each).map_err(failed)?;
        Ok(Some((noted, names)))
    }
}
