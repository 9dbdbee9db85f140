//! Modifiers in perf's spelling.

use core::fmt;

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
    /// `G`: in guests. Without `G` and `H`: in the host.
    pub guest: bool,
    /// `H`: in the host.
    pub host: bool,
    /// `I`: not in idle CPUs.
    pub not_idle: bool,
    /// `D`: always counts or is in error.
    pub pinned: bool,
    /// `e`: alone on the CPU.
    pub exclusive: bool,
    /// `p`, up to three times: how close a sample is to its instruction.
    pub precise: u8,
}

impl Modifiers {
    /// Parses modifiers. Ignores perf's `P` (as precise as possible), `S` (the leader samples) and `W` (a weak group).
    pub(super) fn read(text: &str) -> Result<Modifiers, CounterFault> {
        if text.is_empty() {
            return Err(CounterFault::ModifierMissing);
        }
        let mut read = Modifiers::default();
        for letter in text.chars() {
            match letter {
                'u' => read.user = true,
                'k' => read.kernel = true,
                'h' => read.hypervisor = true,
                'G' => read.guest = true,
                'H' => read.host = true,
                'I' => read.not_idle = true,
                'D' => read.pinned = true,
                'e' => read.exclusive = true,
                'p' if read.precise < 3 => read.precise += 1,
                'P' | 'S' | 'W' => {}
                other => return Err(CounterFault::NoModifier(other)),
            }
        }
        Ok(read)
    }

    pub(super) fn and(self, group: Modifiers) -> Modifiers {
        Modifiers {
            user: self.user || group.user,
            kernel: self.kernel || group.kernel,
            hypervisor: self.hypervisor || group.hypervisor,
            guest: self.guest || group.guest,
            host: self.host || group.host,
            not_idle: self.not_idle || group.not_idle,
            pinned: self.pinned || group.pinned,
            exclusive: self.exclusive || group.exclusive,
            precise: self.precise.max(group.precise),
        }
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
        for (is_set, letter) in [
            (self.user, "u"),
            (self.kernel, "k"),
            (self.hypervisor, "h"),
            (self.guest, "G"),
            (self.host, "H"),
            (self.not_idle, "I"),
            (self.pinned, "D"),
            (self.exclusive, "e"),
        ] {
            if is_set {
                f.write_str(letter)?;
            }
        }
        (0..self.precise).try_for_each(|_| f.write_str("p"))
    }
}
