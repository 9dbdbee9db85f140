//! The load of each CPU: pairs of reserve and release, as in `stress`. A pair is for a task or for a CPU.

use tiptoe_breakpoint::Geometry;
use tiptoe_schedule::simulate::Random;

use super::locks::{Call, Load, Ps};
use super::prices::Prices;

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    hold: Ps,
    exchange: Ps,
    moved: Ps,
}

/// The load for one form of accounting.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    outside: Ps,
    /// The mean time of other work before each pair.
    work: Ps,
    cpu_targets: u32,
    of_task: Times,
    of_cpu: Times,
    /// The shard of each CPU's task, and the number of shards.
    shards: Vec<usize>,
    count: usize,
    cpus: Vec<At>,
}

#[derive(Clone, Copy, Debug, Default)]
struct At {
    pair: u32,
    is_reserved: bool,
}

impl Pairs {
    /// Returns the load for these shards. If `geometry` has one shard, the form is that with one mutex.
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
        // Besides the shard's line, the line of the header must be transferred after a request for a CPU.
        let of_task = Times {
            hold: form.task.hold,
            exchange: form.task.exchange,
            moved: if is_one { moved } else { 2 * moved },
        };
        let held = form.of_cpu(cpus);
        let of_cpu = Times {
            hold: held.hold,
            exchange: held.exchange,
            moved,
        };
        let start = |_| At {
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
        let (times, locks) = match is_for_cpu {
            true => (self.of_cpu, 0..self.count),
            false => (self.of_task, self.shards[cpu]..self.shards[cpu] + 1),
        };
        Call {
            outside: self.outside,
            work,
            locks,
            exchange: times.exchange,
            moved: times.moved,
            hold: times.hold,
            is_last,
        }
    }
}
