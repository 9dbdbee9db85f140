//! Modifiers in perf's spelling.

use core::fmt::{self, Write};

use super::CounterFault;

/// Where and how an event counts; by default everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modifiers {
    /// `u`: in user space.
    pub user: bool,
    /// `k`: in the kernel.
    pub kernel: bool,
    /// `h`: in the hypervisor.
    pub hypervisor: bool,
    /// `G`: in guests. With neither `G` nor `H`: in the host.
    pub guest: bool,
    /// `H`: in the host.
    pub host: bool,
    /// `I`: not in idle CPUs.
    pub not_idle: bool,
    /// `D`: the event always keeps its counter, or is in error.
    pub pinned: bool,
    /// `e`: alone on its CPU.
    pub exclusive: bool,
    /// `p`, up to three times: how close a sample is to its instruction.
    pub precise: u8,
}

type Flag = fn(&mut Modifiers) -> &mut bool;

const FLAGS: [(char, Flag); 8] = [
    ('u', |all| &mut all.user),
    ('k', |all| &mut all.kernel),
    ('h', |all| &mut all.hypervisor),
    ('G', |all| &mut all.guest),
    ('H', |all| &mut all.host),
    ('I', |all| &mut all.not_idle),
    ('D', |all| &mut all.pinned),
    ('e', |all| &mut all.exclusive),
];

impl Modifiers {
    /// Ignores perf's `P`, `S` and `W`.
    pub(super) fn read(text: &str) -> Result<Modifiers, CounterFault> {
        if text.is_empty() {
            return Err(CounterFault::ModifierMissing);
        }
        let mut read = Modifiers::default();
        for letter in text.chars() {
            if let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == letter) {
                *flag(&mut read) = true;
                continue;
            }
            match letter {
                'p' if read.precise < 3 => read.precise += 1,
                'P' | 'S' | 'W' => {}
                other => return Err(CounterFault::NoModifier(other)),
            }
        }
        Ok(read)
    }

    pub(super) fn and(mut self, mut group: Modifiers) -> Modifiers {
        for (_, flag) in FLAGS {
            *flag(&mut self) |= *flag(&mut group);
        }
        self.precise = self.precise.max(group.precise);
        self
    }

    fn counts_in(&self, named: bool) -> bool {
        named || !(self.user || self.kernel || self.hypervisor)
    }

    /// Returns whether the event counts in user space.
    pub fn counts_user(&self) -> bool {
        self.counts_in(self.user)
    }

    /// Returns whether the event counts in the kernel.
    pub fn counts_kernel(&self) -> bool {
        self.counts_in(self.kernel)
    }

    /// Returns whether the event counts in the hypervisor.
    pub fn counts_hypervisor(&self) -> bool {
        self.counts_in(self.hypervisor)
    }
}

impl fmt::Display for Modifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = *self;
        for (letter, flag) in FLAGS {
            if *flag(&mut all) {
                f.write_char(letter)?;
            }
        }
        (0..self.precise).try_for_each(|_| f.write_char('p'))
    }
}
