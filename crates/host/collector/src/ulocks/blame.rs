//! The call sites that woke a lock's waiters, and the lock's holders during the waits.

use std::collections::BTreeMap;

use tiptoe_session::{Blame, Holder};
use tiptoe_wire::futex::{entry as e, holder as h};

use super::{Names, Waits};

/// Holders are reported only if at least this share of the waiting time has a known holder or [`h::UNSEEN`].
const LEAST_KNOWN_SHARE: f64 = 0.95;

/// Nanoseconds of waiting for each holder. A holder is a word as [`h`] defines it.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders(BTreeMap<u64, u64>);

impl Holders {
    pub(super) fn read(words: &[u64]) -> Holders {
        let word = |word: u32| words.get(word as usize).copied().unwrap_or(0);
        let slots = (0..e::HOLDER_COUNT).map(|i| e::HOLDERS + i * e::HOLDER_WORDS);
        let mut holders = Holders::default();
        for slot in slots.filter(|slot| word(*slot) != 0) {
            holders.add_ns(word(slot), word(slot + 2));
        }
        holders
    }

    pub(super) fn add(&mut self, more: &Holders) {
        for (key, ns) in &more.0 {
            self.add_ns(*key, *ns);
        }
    }

    fn add_ns(&mut self, key: u64, ns: u64) {
        let sum = self.0.entry(key).or_default();
        *sum = sum.saturating_add(ns);
    }

    /// Returns the holders by name, longest first, and the ns without a known holder; `None` if these ns are too
    /// large a part of `total_ns`. A holder's id counts only if it is in `threads`, because the id is whatever the
    /// lock contained.
    pub(super) fn by_name(
        &self,
        names: &Names,
        threads: &BTreeMap<u32, String>,
        total_ns: u64,
    ) -> Option<(Vec<Holder>, u64)> {
        let mut holders: Vec<Holder> = Vec::new();
        let (mut known_ns, mut unseen_ns) = (0u64, 0u64);
        for (key, ns) in &self.0 {
            let holder = match *key {
                h::UNKNOWN => continue,
                h::UNSEEN => {
                    unseen_ns = *ns;
                    continue;
                }
                h::READERS => Holder {
                    readers: true,
                    ..Holder::default()
                },
                key if key & h::THREAD != 0 => {
                    let Some(thread) = threads.get(&(key as u32)) else {
                        continue;
                    };
                    Holder {
                        thread: Some(thread.clone()),
                        ..Holder::default()
                    }
                }
                site => Holder {
                    callsite: Some(names.code(site)),
                    ..Holder::default()
                },
            };
            known_ns = known_ns.saturating_add(*ns);
            let mut same = holders.iter_mut();
            let same =
                same.find(|one| one.callsite == holder.callsite && one.thread == holder.thread);
            match same {
                Some(same) => same.total_ns = same.total_ns.saturating_add(*ns),
                None => holders.push(Holder {
                    total_ns: *ns,
                    ..holder
                }),
            }
        }
        holders.sort_by_key(|holder| u64::MAX - holder.total_ns);
        let is_known =
            known_ns.saturating_add(unseen_ns) as f64 >= total_ns as f64 * LEAST_KNOWN_SHARE;
        let unknown_ns = total_ns.saturating_sub(known_ns);
        (known_ns > 0 && is_known).then_some((holders, unknown_ns))
    }
}

impl Waits {
    /// The call sites that ended the longest waits are first.
    pub(super) fn blame(&self, names: &Names) -> Vec<Blame> {
        let wakers = self.wakers.iter();
        let mut blame: Vec<Blame> = wakers
            .map(|(site, (count, total_ns))| Blame {
                callsite: names.code(*site),
                count: *count,
                total_ns: *total_ns,
            })
            .collect();
        blame.sort_by_key(|blame| (u64::MAX - blame.total_ns, blame.callsite.clone()));
        blame.dedup_by(|more, kept| {
            let same = more.callsite == kept.callsite;
            if same {
                kept.count = kept.count.saturating_add(more.count);
                kept.total_ns = kept.total_ns.saturating_add(more.total_ns);
            }
            same
        });
        blame
    }
}
