//! [`Model`] applies the crate's rule to a plain list of reservations.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::atomic::AtomicU64;

use tiptoe_breakpoint::{Accounting, Geometry, Kind, Registers, Request, Target, Wait};

pub struct Yields;

impl Wait for Yields {
    const LOOKS: u32 = 20;

    fn park(&self, _: &AtomicU64, _: u64) {
        std::thread::yield_now();
    }

    fn unpark(&self, _: &AtomicU64) {}

    fn now_ns(&self) -> u64 {
        0
    }
}

pub fn storage(geometry: &Geometry) -> Vec<AtomicU64> {
    (0..geometry.words()).map(|_| AtomicU64::new(0)).collect()
}

pub fn accounting<'a>(geometry: Geometry, words: &'a [AtomicU64]) -> Accounting<'a, Yields> {
    Accounting::new(geometry, words, &Yields).expect("enough words")
}

pub const fn task(task: u64, cpu: Option<u32>) -> Target {
    Target::Task { task, cpu }
}

#[derive(Clone, Debug)]
pub struct Model {
    pub cpus: u32,
    pub registers: Registers,
    pub reservations: Vec<Request>,
}

impl Model {
    pub fn new(cpus: u32, registers: Registers) -> Self {
        Model {
            cpus,
            registers,
            reservations: Vec::new(),
        }
    }

    fn slots(&self, kind: Kind) -> u32 {
        match (self.registers, kind) {
            (Registers::Mixed(slots), _) => slots,
            (Registers::Separate { data, .. }, Kind::Data) => data,
            (Registers::Separate { instruction, .. }, Kind::Instruction) => instruction,
        }
    }

    fn shares_registers(&self, one: Kind, two: Kind) -> bool {
        matches!(self.registers, Registers::Mixed(_)) || one == two
    }

    fn on(&self, cpu: u32, kind: Kind) -> impl Iterator<Item = &Request> {
        self.reservations.iter().filter(move |held| {
            self.shares_registers(held.kind, kind) && held.cpu().is_none_or(|on| on == cpu)
        })
    }

    /// Returns the CPU-wide slots, and the slots of the request's task (for a CPU's request, of the task with most
    /// slots).
    pub fn in_the_way(&self, request: &Request, cpu: u32) -> (u32, u32) {
        let sum = |of: &dyn Fn(&Target) -> bool| -> u32 {
            let held = self.on(cpu, request.kind).filter(|held| of(&held.target));
            held.map(|held| held.weight).sum()
        };
        let of_task =
            |id: u64| sum(&|target| matches!(target, Target::Task { task, .. } if *task == id));
        let tasks = match request.target {
            Target::Task { task, .. } => of_task(task),
            Target::Cpu(_) => {
                let tasks = self
                    .reservations
                    .iter()
                    .filter_map(|held| match held.target {
                        Target::Task { task, .. } => Some(task),
                        Target::Cpu(_) => None,
                    });
                tasks.map(of_task).max().unwrap_or(0)
            }
        };
        (sum(&|target| matches!(target, Target::Cpu(_))), tasks)
    }

    pub fn fits(&self, request: &Request) -> bool {
        let cpus = match request.cpu() {
            Some(cpu) => cpu..cpu + 1,
            None => 0..self.cpus,
        };
        cpus.into_iter().all(|cpu| {
            let (wide, tasks) = self.in_the_way(request, cpu);
            wide + tasks + request.weight <= self.slots(request.kind)
        })
    }

    pub fn of_tasks(&self) -> usize {
        let tasks = self.reservations.iter();
        tasks
            .filter(|held| matches!(held.target, Target::Task { .. }))
            .count()
    }

    pub fn release(&mut self, request: &Request) -> bool {
        let at = self.reservations.iter().position(|held| held == request);
        at.map(|at| self.reservations.remove(at)).is_some()
    }

    pub fn holders(&self, request: &Request, cpu: u32, task: Option<u64>) -> Vec<(u64, bool)> {
        let held = self.on(cpu, request.kind).flat_map(|held| {
            let is_wide = matches!(held.target, Target::Cpu(_));
            let is_named =
                is_wide || matches!(held.target, Target::Task { task: id, .. } if Some(id) == task);
            // A conflict names a CPU-wide holder once for each of its slots.
            let times = if is_wide { held.weight } else { 1 };
            (0..times)
                .filter(move |_| is_named)
                .map(move |_| (held.holder, is_wide))
        });
        let mut held: Vec<_> = held.collect();
        held.sort_unstable();
        held
    }
}
