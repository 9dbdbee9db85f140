//! CPUs and locks in simulated time. A lock behaves as in `tiptoe_sync::Shards`:
//!
//! | a CPU | action |
//! |---|---|
//! | finds a lock free | takes the lock, even if another CPU has waited longer |
//! | finds a lock held | checks the lock a few times, and tries to take it when it is free |
//! | finds the lock held at each check | marks the lock awaited, sleeps until woken, and tries again |
//! | releases an awaited lock | wakes one sleeper, which takes time on both CPUs |
//!
//! A lock and its data are in the cache of the CPU that held the lock last. A transfer takes time when a CPU takes a
//! lock that another CPU held last, checks a lock after a change, or releases a lock that other CPUs check.
//!
//! Times are whole picoseconds and random numbers come from a seed, so that equal inputs have equal results anywhere.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use tiptoe_schedule::simulate::Random;

pub(super) type Ps = u64;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Costs {
    /// The time to transfer a cache line from another CPU.
    pub(super) line: Ps,
    /// The time between two checks (looks) of a held lock.
    pub(super) look: Ps,
    /// The number of checks before a CPU sleeps.
    pub(super) looks: u64,
    pub(super) wake: Ps,
    /// The time from a wake until the sleeper runs.
    pub(super) woken: Ps,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Call {
    /// The time from the call's beginning until it takes its first lock.
    pub(super) outside: Ps,
    pub(super) work: Ps,
    pub(super) locks: Range<usize>,
    /// The time to take a free lock that is in the CPU's cache, or to release a lock that no CPU checks.
    pub(super) exchange: Ps,
    /// The added time to take a lock that another CPU held last.
    pub(super) moved: Ps,
    /// The locks whose data the call reads, without taking them.
    pub(super) seen: Range<usize>,
    /// The added time for each lock of `seen` that another CPU held last.
    pub(super) seen_moved: Ps,
    pub(super) hold: Ps,
    /// Whether the end of the call completes a unit of work.
    pub(super) is_last: bool,
}

pub(super) trait Load {
    fn next(&mut self, cpu: usize, random: &mut Random) -> Call;
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    pub(super) time: Ps,
    pub(super) done: u64,
    pub(super) waited: Ps,
    pub(super) worked: Ps,
    /// The part of `worked` outside of calls.
    pub(super) own: Ps,
    pub(super) slept: u64,
}

#[derive(Debug, Default)]
struct Lock {
    is_held: bool,
    is_awaited: bool,
    given: u64,
    had_last: Option<usize>,
    looking: Vec<usize>,
    asleep: VecDeque<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Taking(usize),
    Looking(usize),
    Asleep(usize),
    /// The CPU releases this lock. The flag: the lock's cache line is back from the CPUs that check the lock.
    Giving(usize, bool),
}

#[derive(Debug)]
struct Cpu {
    call: Call,
    phase: Phase,
    waits_since: Option<Ps>,
    /// When the CPU stops checking the lock, and the lock's number of releases when this was computed.
    until: (Ps, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    Goes(usize),
    /// The first of the checking CPUs sees the lock free. The event is ignored if the lock's number of releases is no
    /// longer `given`.
    IsSeen {
        lock: usize,
        given: u64,
    },
    LookedEnough(usize),
    Wakes(usize),
}

pub(super) struct Machine<'a, L> {
    costs: &'a Costs,
    load: L,
    random: Random,
    cpus: Vec<Cpu>,
    locks: Vec<Lock>,
    /// Ordered by time, then by number, so that a run can be repeated.
    events: BinaryHeap<Reverse<(Ps, u64, SimulatedEvent)>>,
    event_count: u64,
    now: Ps,
    seen: Outcome,
}

impl<'a, L: Load> Machine<'a, L> {
    pub(super) fn new(costs: &'a Costs, cpus: usize, locks: usize, load: L, seed: u64) -> Self {
        let mut machine = Machine {
            costs,
            load,
            random: Random::new(seed),
            cpus: Vec::with_capacity(cpus),
            locks: std::iter::repeat_with(Lock::default).take(locks).collect(),
            events: BinaryHeap::new(),
            event_count: 0,
            now: 0,
            seen: Outcome::default(),
        };
        for cpu in 0..cpus {
            machine.cpus.push(Cpu {
                call: Call::default(),
                phase: Phase::Taking(0),
                waits_since: None,
                until: (0, 0),
            });
            machine.begin(cpu, 0);
        }
        machine
    }

    pub(super) fn run(mut self, before: u64, events: u64) -> Outcome {
        self.pass(before);
        let early = self.so_far();
        self.pass(events);
        let late = self.so_far();
        Outcome {
            time: late.time - early.time,
            done: late.done - early.done,
            waited: late.waited - early.waited,
            worked: late.worked - early.worked,
            own: late.own - early.own,
            slept: late.slept - early.slept,
        }
    }

    /// Includes waits that have not ended.
    fn so_far(&self) -> Outcome {
        let waits = self.cpus.iter().filter_map(|cpu| cpu.waits_since);
        let waited = self.seen.waited + waits.map(|since| self.now - since).sum::<Ps>();
        Outcome {
            time: self.now,
            waited,
            worked: self.now * self.cpus.len() as u64 - waited,
            ..self.seen
        }
    }

    fn pass(&mut self, events: u64) {
        for _ in 0..events {
            let Some(Reverse((at, _, what))) = self.events.pop() else {
                return;
            };
            self.now = at;
            match what {
                SimulatedEvent::Goes(cpu) => self.go(cpu),
                SimulatedEvent::IsSeen { lock, given } => self.is_seen(lock, given),
                SimulatedEvent::LookedEnough(cpu) => self.looked_enough(cpu),
                SimulatedEvent::Wakes(cpu) => self.insist(cpu),
            }
        }
    }

    fn note(&mut self, after: Ps, what: SimulatedEvent) {
        self.event_count += 1;
        let at = self.now + after;
        self.events.push(Reverse((at, self.event_count, what)));
    }

    /// Begins a CPU's next call at the end of its previous call, `after` from now.
    fn begin(&mut self, cpu: usize, after: Ps) {
        let call = self.load.next(cpu, &mut self.random);
        self.cpus[cpu].phase = Phase::Taking(call.locks.start);
        self.seen.own += call.work;
        self.note(
            after + call.work + call.outside + call.exchange,
            SimulatedEvent::Goes(cpu),
        );
        self.cpus[cpu].call = call;
    }

    fn go(&mut self, cpu: usize) {
        match self.cpus[cpu].phase {
            Phase::Taking(lock) if self.locks[lock].is_held => self.look(cpu, lock),
            Phase::Taking(lock) => self.has(cpu, lock),
            Phase::Giving(lock, is_paid) => self.give(cpu, lock, is_paid),
            Phase::Looking(_) | Phase::Asleep(_) => {}
        }
    }

    fn look(&mut self, cpu: usize, lock: usize) {
        let enough = self.costs.look * self.costs.looks;
        self.cpus[cpu].phase = Phase::Looking(lock);
        self.cpus[cpu].until = (self.now + enough, self.locks[lock].given);
        self.cpus[cpu].waits_since = Some(self.now);
        self.locks[lock].looking.push(cpu);
        self.note(enough, SimulatedEvent::LookedEnough(cpu));
    }

    /// Gives the lock to the CPU, which then takes the call's next lock, or holds all for [`Call::hold`].
    fn has(&mut self, cpu: usize, lock: usize) {
        if let Some(since) = self.cpus[cpu].waits_since.take() {
            self.seen.waited += self.now - since;
        }
        let had_last = self.locks[lock].had_last.replace(cpu);
        self.locks[lock].is_held = true;
        let call = &self.cpus[cpu].call;
        let is_elsewhere = had_last.is_some_and(|other| other != cpu);
        let mut after = if is_elsewhere { call.moved } else { 0 };
        self.cpus[cpu].phase = match lock + 1 < call.locks.end {
            true => {
                after += call.exchange;
                Phase::Taking(lock + 1)
            }
            false => {
                after += call.hold + call.exchange;
                for seen in &mut self.locks[call.seen.clone()] {
                    let had_last = seen.had_last.as_mut().filter(|other| **other != cpu);
                    if let Some(other) = had_last {
                        *other = cpu;
                        after += call.seen_moved;
                    }
                }
                Phase::Giving(call.locks.start, false)
            }
        };
        self.note(after, SimulatedEvent::Goes(cpu));
    }

    fn give(&mut self, cpu: usize, lock: usize, is_paid: bool) {
        let costs = self.costs;
        let looking = self.locks[lock].looking.len() as u64;
        if looking > 0 && !is_paid {
            // The line must come back from the caches of the checking CPUs.
            self.cpus[cpu].phase = Phase::Giving(lock, true);
            return self.note(costs.line, SimulatedEvent::Goes(cpu));
        }
        let free = &mut self.locks[lock];
        (free.is_held, free.given) = (false, free.given + 1);
        let given = free.given;
        let was_awaited = std::mem::take(&mut free.is_awaited);
        let sleeper = if was_awaited {
            free.asleep.pop_front()
        } else {
            None
        };
        if looking > 0 {
            let first = self.first_look(looking);
            self.note(first, SimulatedEvent::IsSeen { lock, given });
        }
        if let Some(sleeper) = sleeper {
            self.note(costs.woken, SimulatedEvent::Wakes(sleeper));
        }
        let wake = if was_awaited { costs.wake } else { 0 };
        let call = &self.cpus[cpu].call;
        if lock + 1 < call.locks.end {
            let after = wake + call.exchange;
            self.cpus[cpu].phase = Phase::Giving(lock + 1, false);
            return self.note(after, SimulatedEvent::Goes(cpu));
        }
        self.seen.done += u64::from(call.is_last);
        self.begin(cpu, wake);
    }

    /// Returns the time until the first of the checking CPUs checks. Each checks at a random moment within one period:
    /// the time between two checks, plus a transfer.
    fn first_look(&mut self, looking: u64) -> Ps {
        let unit = self.random.between(1, 1 << 32) as f64 / 4_294_967_296.0;
        let least = 1.0 - unit.powf(1.0 / looking as f64);
        (least * (self.costs.look + self.costs.line) as f64) as Ps
    }

    fn is_seen(&mut self, lock: usize, given: u64) {
        let free = &mut self.locks[lock];
        if free.is_held || free.given != given || free.looking.is_empty() {
            return;
        }
        let which = self.random.between(0, free.looking.len() as u64) as usize;
        let cpu = free.looking.swap_remove(which);
        self.has(cpu, lock);
    }

    fn looked_enough(&mut self, cpu: usize) {
        let Phase::Looking(lock) = self.cpus[cpu].phase else {
            return;
        };
        let (until, seen) = self.cpus[cpu].until;
        if until != self.now {
            return;
        }
        // Each release since `until` was computed has prolonged one check by the transfer of the lock's line.
        let given = self.locks[lock].given;
        let longer = (given - seen).min(self.costs.looks) * self.costs.line;
        if longer > 0 {
            self.cpus[cpu].until = (self.now + longer, given);
            return self.note(longer, SimulatedEvent::LookedEnough(cpu));
        }
        self.locks[lock].looking.retain(|&other| other != cpu);
        self.cpus[cpu].phase = Phase::Asleep(lock);
        self.insist(cpu);
    }

    fn insist(&mut self, cpu: usize) {
        let Phase::Asleep(lock) = self.cpus[cpu].phase else {
            return;
        };
        self.locks[lock].is_awaited = true;
        if self.locks[lock].is_held {
            self.locks[lock].asleep.push_back(cpu);
            self.seen.slept += 1;
        } else {
            self.has(cpu, lock);
        }
    }
}
