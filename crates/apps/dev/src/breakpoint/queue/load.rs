//! The calls that each simulated CPU makes: pairs that reserve and release debug registers, as in `stress`.

use tiptoe_breakpoint::Geometry;
use tiptoe_schedule::simulate::Random;

use super::locks::{Call, Load, Ps};
use super::prices::Prices;

#[derive(Clone, Copy, Debug, Default)]
struct PairLengths {
    hold: Ps,
    exchange: Ps,
    moved: Ps,
    /// The added time to read a shard (a lock and its data) that another CPU held last.
    seen_moved: Ps,
}

#[derive(Clone, Debug)]
pub(super) struct Pairs {
    outside: Ps,
    work: Ps,
    cpu_targets: u32,
    of_task: PairLengths,
    of_cpu: PairLengths,
    /// The shard of each CPU's task. Each shard has a lock; the last lock is for requests for a CPU.
    shards: Vec<usize>,
    count: usize,
    cpus: Vec<CpuState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CpuState {
    pair: u32,
    is_reserved: bool,
}

impl Pairs {
    /// Returns the load of tiptoe's accounting, or of one mutex if `geometry` has one shard.
    pub(super) fn new(
        prices: &Prices,
        geometry: &Geometry,
        cpu_targets: u32,
        work: Ps,
        seed: u64,
    ) -> Pairs {
        let mut random = Random::new(seed);
        let cpus = geometry.cpus();
        let is_one = geometry.shards() == 1;
        let (form, moved) = match is_one {
            true => (&prices.global_mutex, prices.handed),
            false => (&prices.tiptoe, prices.moved),
        };
        // A task's call transfers the lines of the lock and of the header, which requests for a CPU write.
        let of_task = PairLengths {
            hold: form.task.hold,
            exchange: form.task.exchange,
            moved: if is_one { moved } else { 2 * moved },
            seen_moved: 0,
        };
        let held = form.of_cpu(cpus);
        // A request for a CPU transfers the lines of the lock, of the header and of the CPU's slots.
        let of_cpu = PairLengths {
            hold: held.hold,
            exchange: held.exchange,
            moved: if is_one { moved } else { 3 * moved },
            seen_moved: prices.moved,
        };
        let start = |_| CpuState {
            pair: random.between(0, 100) as u32,
            is_reserved: false,
        };
        Pairs {
            outside: prices.outside,
            work,
            cpu_targets,
            of_task,
            of_cpu,
            shards: (0..cpus)
                .map(|cpu| geometry.shard(1_000 + u64::from(cpu)))
                .collect(),
            count: geometry.shards(),
            cpus: (0..cpus).map(start).collect(),
        }
    }

    pub(super) fn locks(&self) -> usize {
        self.count + 1
    }
}

impl Load for Pairs {
    fn next(&mut self, cpu: usize, random: &mut Random) -> Call {
        let at = &mut self.cpus[cpu];
        let percent = self.cpu_targets;
        let is_for_cpu = (at.pair + 1) * percent / 100 > at.pair * percent / 100;
        let is_last = at.is_reserved;
        at.is_reserved = !is_last;
        if is_last {
            at.pair = (at.pair + 1) % 100;
        }
        let work = match is_last {
            false => random.between(self.work / 2, self.work / 2 + self.work + 1),
            true => 0,
        };
        let is_one = self.count == 1;
        let lock = match is_for_cpu {
            true if !is_one => self.count,
            _ => self.shards[cpu],
        };
        // A reservation for a CPU reads all shards.
        let (times, seen) = match is_for_cpu {
            true if !is_one => (self.of_cpu, 0..self.count),
            true => (self.of_cpu, 0..0),
            false => (self.of_task, 0..0),
        };
        Call {
            outside: self.outside,
            work,
            locks: lock..lock + 1,
            exchange: times.exchange,
            moved: times.moved,
            seen,
            seen_moved: if is_last { 0 } else { times.seen_moved },
            hold: times.hold,
            is_last,
        }
    }
}
