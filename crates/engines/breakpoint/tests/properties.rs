//! Compares random sequences of requests with [`Model`].
#![cfg(not(tiptoe_loom))]

mod common;

use std::cell::{Cell, RefCell};

use common::{Model, Yields, accounting, storage, task};
use proptest::collection::vec;
use proptest::prelude::*;
use tiptoe_breakpoint::{
    Accounting, Backend, Error, Geometry, Kind, MOST_HOLDERS, Refusal, Registers, Request, Target,
};

const CPUS: u32 = 3;

#[derive(Clone, Debug)]
enum Act {
    Reserve(Request),
    Release(usize),
    Modify(usize, Request),
    Wide(Kind, u32),
    /// Releases a request that is not held.
    Unknown(Request),
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        3 => (0..3u64).prop_map(|id| task(id, None)),
        3 => (0..3u64, 0..CPUS).prop_map(|(id, cpu)| task(id, Some(cpu))),
        2 => (0..CPUS).prop_map(Target::Cpu),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![3 => Just(Kind::Data), 1 => Just(Kind::Instruction)]
}

fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![9 => Just(1u32), 1 => Just(2u32)]
}

fn request() -> impl Strategy<Value = Request> {
    (target(), kind(), weight()).prop_map(|(target, kind, weight)| Request {
        target,
        kind,
        weight,
        holder: 0,
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => request().prop_map(Act::Reserve),
        5 => any::<usize>().prop_map(Act::Release),
        2 => (any::<usize>(), request()).prop_map(|(at, request)| Act::Modify(at, request)),
        1 => (kind(), weight()).prop_map(|(kind, weight)| Act::Wide(kind, weight)),
        1 => request().prop_map(Act::Unknown),
    ]
}

fn registers() -> impl Strategy<Value = Registers> {
    prop_oneof![
        (2..6u32).prop_map(Registers::Mixed),
        (2..5u32, 2..5u32)
            .prop_map(|(data, instruction)| Registers::Separate { data, instruction }),
    ]
}

#[derive(Default)]
struct Hardware {
    taken_requests: RefCell<Vec<Request>>,
    request_count: Cell<u32>,
    refuses_every: u32,
}

impl Hardware {
    fn drop_one(&self, request: &Request) {
        let mut held = self.taken_requests.borrow_mut();
        let at = held.iter().position(|held| held == request);
        held.remove(at.expect("only what was reserved is released"));
    }

    fn refuses(&self) -> bool {
        self.request_count.set(self.request_count.get() + 1);
        self.request_count.get().is_multiple_of(self.refuses_every)
    }
}

impl Backend for &Hardware {
    const PARALLEL: bool = false;

    fn reserve(&self, request: &Request) -> Result<(), Refusal> {
        if self.refuses() {
            return Err(Refusal(-16));
        }
        self.taken_requests.borrow_mut().push(*request);
        Ok(())
    }

    fn release(&self, request: &Request) {
        self.drop_one(request);
    }

    fn replace(&self, old: &Request, new: &Request) -> Result<(), Refusal> {
        self.reserve(new)?;
        self.drop_one(old);
        Ok(())
    }
}

struct World<'a> {
    ours: Accounting<'a, Yields, &'a Hardware>,
    hardware: &'a Hardware,
    model: Model,
    capacity: usize,
    next: u64,
}

impl World<'_> {
    fn named(&mut self, request: Request) -> Request {
        self.next += 1;
        let holder = self.next;
        Request { holder, ..request }
    }

    fn expected(model: &Model, capacity: usize, request: &Request) -> Result<(), &'static str> {
        let is_task = matches!(request.target, Target::Task { .. });
        match model.fits(request) {
            false => Err("no slot"),
            true if is_task && model.of_tasks() >= capacity => Err("full"),
            true => Ok(()),
        }
    }

    fn compare(&self, model: &Model, request: &Request, answer: Result<(), Error>) -> bool {
        let expected = Self::expected(model, self.capacity, request);
        match answer {
            Ok(()) => assert_eq!(expected, Ok(()), "{request:?}"),
            Err(Error::Full) => assert_eq!(expected, Err("full"), "{request:?}"),
            Err(Error::Backend(_)) => assert_eq!(expected, Ok(()), "{request:?}"),
            Err(Error::NoSlot(conflict)) => {
                assert_eq!(expected, Err("no slot"), "{request:?}");
                let mut named: Vec<_> = conflict
                    .holders()
                    .map(|holder| (holder.id, holder.is_wide))
                    .collect();
                named.sort_unstable();
                let all = model.holders(request, conflict.cpu, conflict.task);
                assert_eq!(named.len() + conflict.more as usize, all.len());
                assert_eq!(named.len(), all.len().min(MOST_HOLDERS));
                assert!(
                    named.iter().all(|one| all.contains(one)),
                    "{named:?} {all:?}"
                );
                let (wide, tasks) = model.in_the_way(request, conflict.cpu);
                let slots = all.len() as u32;
                assert!(slots <= wide + tasks && (slots > 0 || wide + tasks == 0));
            }
            Err(error) => panic!("{request:?}: {error}"),
        }
        answer.is_ok()
    }

    fn run(&mut self, act: Act) {
        match act {
            Act::Reserve(request) => {
                let request = self.named(request);
                let answer = self.ours.reserve(&request);
                if self.compare(&self.model, &request, answer) {
                    self.model.reservations.push(request);
                }
            }
            Act::Release(_) | Act::Modify(..) if self.model.reservations.is_empty() => {}
            Act::Release(at) => {
                let at = at % self.model.reservations.len();
                let request = self.model.reservations.swap_remove(at);
                assert_eq!(self.ours.release(&request), Ok(()));
            }
            Act::Modify(at, new) => {
                let at = at % self.model.reservations.len();
                let new = self.named(new);
                let mut model = self.model.clone();
                let old = model.reservations.swap_remove(at);
                let answer = self.ours.modify(&old, &new);
                if self.compare(&model, &new, answer) {
                    model.reservations.push(new);
                    self.model = model;
                }
            }
            Act::Wide(kind, weight) => {
                self.next += 1;
                let answer = self.ours.reserve_wide(kind, weight, self.next);
                let requests: Vec<_> = (0..CPUS)
                    .map(|cpu| Request {
                        target: Target::Cpu(cpu),
                        kind,
                        weight,
                        holder: self.next,
                    })
                    .collect();
                self.all_or_nothing(&requests, answer);
            }
            Act::Unknown(request) => {
                let request = self.named(request);
                assert_eq!(self.ours.release(&request), Err(Error::NotHeld));
                assert_eq!(self.ours.modify(&request, &request), Err(Error::NotHeld));
            }
        }
        self.check_state();
    }

    fn all_or_nothing(&mut self, requests: &[Request], answer: Result<(), Error>) {
        if matches!(answer, Err(Error::Backend(_))) {
            return;
        }
        let mut model = self.model.clone();
        for request in requests {
            if !model.fits(request) || Self::expected(&model, self.capacity, request).is_err() {
                self.compare(&model, request, answer);
                return;
            }
            model.reservations.push(*request);
        }
        match answer {
            Ok(()) => self.model = model,
            Err(error) => panic!("{requests:?}: {error}"),
        }
    }

    fn check_state(&self) {
        let key = |request: &Request| (request.holder, request.cpu());
        let mut theirs = self.hardware.taken_requests.borrow().clone();
        let mut listed = self.model.reservations.clone();
        theirs.sort_by_key(key);
        listed.sort_by_key(key);
        assert_eq!(theirs, listed, "the hardware holds what is accounted for");
        for id in 0..3 {
            for cpu in 0..CPUS {
                let of = |request: &&Request| {
                    matches!(request.target, Target::Task { task, cpu: on }
                        if task == id && on.is_none_or(|on| on == cpu))
                };
                for kind in [Kind::Data, Kind::Instruction] {
                    let is_mixed = matches!(self.model.registers, Registers::Mixed(_));
                    let held = self.model.reservations.iter().filter(of);
                    let slots: u32 = held
                        .filter(|held| is_mixed || held.kind == kind)
                        .map(|held| held.weight)
                        .sum();
                    assert_eq!(self.ours.slots_held(task(id, Some(cpu)), kind), slots);
                }
            }
        }
        assert_eq!(self.ours.is_empty(), self.model.reservations.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 6_000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_answer_is_the_rules(
        registers in registers(),
        capacity in 3..24u32,
        refuses_every in prop_oneof![Just(u32::MAX), 2..9u32],
        acts in vec(act(), 1..if cfg!(miri) { 12 } else { 60 }),
    ) {
        let geometry = Geometry::new(CPUS, registers, capacity).expect("sane");
        let words = storage(&geometry);
        let hardware = Hardware { refuses_every, ..Hardware::default() };
        let ours = Accounting::with_backend(geometry, &words, &Yields, &hardware);
        let mut world = World {
            ours: ours.expect("enough words"),
            hardware: &hardware,
            model: Model::new(CPUS, registers),
            capacity: capacity as usize,
            next: 0,
        };
        acts.into_iter().for_each(|act| world.run(act));
        for request in std::mem::take(&mut world.model.reservations) {
            prop_assert_eq!(world.ours.release(&request), Ok(()));
        }
        prop_assert!(world.ours.is_empty());
    }

    #[test]
    fn corrupted_words_are_survived(
        garbage in vec((any::<prop::sample::Index>(), prop_oneof![0..40u64, any::<u64>()]), 1..40),
        requests in vec(request(), 1..12),
    ) {
        let registers = Registers::Separate { data: 4, instruction: 2 };
        let geometry = Geometry::new(CPUS, registers, 16).expect("sane");
        let words = storage(&geometry);
        for (at, value) in garbage {
            words[at.index(words.len())].store(value, std::sync::atomic::Ordering::Relaxed);
        }
        let ours = accounting(geometry, &words);
        for request in requests {
            let _ = ours.try_reserve(&request);
            let _ = ours.try_release(&request);
        }
    }
}
