//! CPUs and locks, in time that is only counted: each CPU works, takes the locks that its next call needs one after the
//! other, holds them for a while, gives them back, and begins again.
//!
//! A lock goes as `tiptoe_sync::Shards` goes:
//!
//! | who | does |
//! |---|---|
//! | finds it free | has it: who comes first, not who waited longest |
//! | finds it taken | looks at it so many times, and has it if it is free at a look; whoever gives it back and takes it again at once is mostly quicker |
//! | looked in vain | marks it awaited, and sleeps until it is woken; then the same again |
//! | gives it back awaited | wakes one that sleeps, which takes both a while |
//!
//! A lock, with what it guards, lies in the cache of the CPU that had it last: who comes from another pays for the way,
//! a look at what was changed does, and who gives it back while others look at it does.
//! All ways cost the same, however many want the line at once.
//!
//! Times are whole picoseconds and chance comes from a seed, so that the same numbers give the same answer anywhere.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use tiptoe_schedule::simulate::Random;

/// Picoseconds.
pub(super) type Ps = u64;

/// What locks cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Costs {
    /// For one line to get from another CPU.
    pub(super) line: Ps,
    /// From one look to the next.
    pub(super) look: Ps,
    /// After how many looks a CPU sleeps.
    pub(super) looks: u64,
    /// To wake somebody.
    pub(super) wake: Ps,
    /// From there until that one runs.
    pub(super) woken: Ps,
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Call {
    /// What passes in front of it, without a lock.
    pub(super) outside: Ps,
    /// And what has nothing to do with it.
    pub(super) work: Ps,
    /// The locks that it needs, in the order in which it takes them.
    pub(super) locks: Range<usize>,
    /// To take each of them that is free and at hand, or to give it back while nobody looks at it.
    pub(super) exchange: Ps,
    /// How much longer each takes that another CPU had last.
    pub(super) moved: Ps,
    /// How long it holds all of them.
    pub(super) hold: Ps,
    /// Whether something is done when it has ended.
    pub(super) is_last: bool,
}

/// What the CPUs do.
pub(super) trait Load {
    /// The next call of a CPU.
    fn next(&mut self, cpu: usize, random: &mut Random) -> Call;
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// How much time passed.
    pub(super) time: Ps,
    /// How often something was done, by all CPUs.
    pub(super) done: u64,
    /// For how long CPUs waited, all together.
    pub(super) waited: Ps,
    /// For how long they did anything else.
    pub(super) worked: Ps,
    /// Of that, what had nothing to do with calls.
    pub(super) own: Ps,
    /// How often somebody slept.
    pub(super) slept: u64,
}

#[derive(Debug, Default)]
struct Lock {
    is_held: bool,
    is_awaited: bool,
    /// How often it was given back.
    given: u64,
    had_last: Option<usize>,
    looking: Vec<usize>,
    asleep: VecDeque<usize>,
}

/// What a CPU is at.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// In front of its call, or between two of its locks: takes this one next.
    Taking(usize),
    /// Looks at this lock.
    Looking(usize),
    Asleep(usize),
    /// Gives this one back next. Whether those who look at it were paid for.
    Giving(usize, bool),
}

#[derive(Debug)]
struct Cpu {
    call: Call,
    phase: Phase,
    waits_since: Option<Ps>,
    /// Until when it looks at a lock, and how often that had been given back when it was reckoned.
    until: (Ps, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A CPU goes on.
    Goes(usize),
    /// The first of those who look sees that the lock is free, since it was given back so many times.
    IsSeen { lock: usize, given: u64 },
    /// A CPU has looked for long enough, if it still does.
    LookedEnough(usize),
    /// It was woken.
    Wakes(usize),
}

/// CPUs that share locks.
pub(super) struct Machine<'a, L> {
    costs: &'a Costs,
    load: L,
    random: Random,
    cpus: Vec<Cpu>,
    locks: Vec<Lock>,
    /// What is to come; what was noted first comes first.
    events: BinaryHeap<Reverse<(Ps, u64, What)>>,
    noted: u64,
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
            noted: 0,
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

    /// So many events pass without being told of, and so many more.
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

    /// With the waits that are not over.
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
                What::Goes(cpu) => self.go(cpu),
                What::IsSeen { lock, given } => self.is_seen(lock, given),
                What::LookedEnough(cpu) => self.looked_enough(cpu),
                What::Wakes(cpu) => self.insist(cpu),
            }
        }
    }

    fn note(&mut self, after: Ps, what: What) {
        self.noted += 1;
        let at = self.now + after;
        self.events.push(Reverse((at, self.noted, what)));
    }

    /// A CPU's next call, after what it still has to do for the last one.
    fn begin(&mut self, cpu: usize, after: Ps) {
        let call = self.load.next(cpu, &mut self.random);
        self.cpus[cpu].phase = Phase::Taking(call.locks.start);
        self.seen.own += call.work;
        self.note(
            after + call.work + call.outside + call.exchange,
            What::Goes(cpu),
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
        self.note(enough, What::LookedEnough(cpu));
    }

    /// It has the lock, and goes on to the next one, or to what it wanted them for.
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
                Phase::Giving(call.locks.start, false)
            }
        };
        self.note(after, What::Goes(cpu));
    }

    fn give(&mut self, cpu: usize, lock: usize, is_paid: bool) {
        let costs = self.costs;
        let looking = self.locks[lock].looking.len() as u64;
        if looking > 0 && !is_paid {
            // Their caches have the line, too, until they are told.
            self.cpus[cpu].phase = Phase::Giving(lock, true);
            return self.note(costs.line, What::Goes(cpu));
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
            self.note(first, What::IsSeen { lock, given });
        }
        if let Some(sleeper) = sleeper {
            self.note(costs.woken, What::Wakes(sleeper));
        }
        let wake = if was_awaited { costs.wake } else { 0 };
        let call = &self.cpus[cpu].call;
        if lock + 1 < call.locks.end {
            let after = wake + call.exchange;
            self.cpus[cpu].phase = Phase::Giving(lock + 1, false);
            return self.note(after, What::Goes(cpu));
        }
        self.seen.done += u64::from(call.is_last);
        self.begin(cpu, wake);
    }

    /// When the first of so many looks again, who each do within the time of a look for which the line has to come.
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
        // Each look took longer at which the lock had been given back and taken again.
        let given = self.locks[lock].given;
        let longer = (given - seen).min(self.costs.looks) * self.costs.line;
        if longer > 0 {
            self.cpus[cpu].until = (self.now + longer, given);
            return self.note(longer, What::LookedEnough(cpu));
        }
        self.locks[lock].looking.retain(|&other| other != cpu);
        self.cpus[cpu].phase = Phase::Asleep(lock);
        self.insist(cpu);
    }

    /// Has the lock, marked as awaited, or sleeps until it is woken.
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
