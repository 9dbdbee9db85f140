//! What stands behind a colon, as perf spells it.

use core::fmt;

use super::CounterFault;

/// Where and how an event counts. Nothing said is everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modifiers {
    /// `u`: in user space. With none of `u`, `k`, `h` it counts in all three.
    pub user: bool,
    /// `k`: in the kernel.
    pub kernel: bool,
    /// `h`: in the hypervisor.
    pub hypervisor: bool,
    /// `G`: in guests. With neither `G` nor `H` it counts in the host alone.
    pub guest: bool,
    /// `H`: in the host.
    pub host: bool,
    /// `I`: not while the CPU idles.
    pub not_idle: bool,
    /// `D`: pinned, which gives way to nobody, or is in error.
    pub pinned: bool,
    /// `e`: alone on the CPU's counters.
    pub exclusive: bool,
    /// `p`, once to three times: how near to its instruction; where samples are taken, it matters.
    pub precise: u8,
}

impl Modifiers {
    /// Reads the letters. `P` (as precise as can be), `S` (the leader samples) and `W` (a weak group) are
    /// perf's too, and change nothing here.
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

    /// Those of an event, and of the group that it is in.
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

    /// Whether it counts in this of user space, kernel and hypervisor: in all where none is named.
    fn counts_in(&self, named: bool) -> bool {
        named || !(self.user || self.kernel || self.hypervisor)
    }

    /// Whether it counts in user space.
    pub fn counts_user(&self) -> bool {
        self.counts_in(self.user)
    }

    /// Whether it counts in the kernel.
    pub fn counts_kernel(&self) -> bool {
        self.counts_in(self.kernel)
    }

    /// Whether it counts in the hypervisor.
    pub fn counts_hypervisor(&self) -> bool {
        self.counts_in(self.hypervisor)
    }
}

/// The letters, in an order of their own.
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
