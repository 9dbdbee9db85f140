//! Tests that a switch does not allocate, and does not touch PMUs without events of cgroups.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use support::Counters;
use tiptoe_schedule::{
    Context, Event, Label, NoUsableSlot, Pmu, Policy, Priority, Request, Target, Task, Tree,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct CountingAllocator;

// SAFETY: every call goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the same contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

struct SilentPmu(u32);

impl Pmu for SilentPmu {
    fn slots(&self) -> u32 {
        self.0
    }

    fn add(&mut self, _event: Event) -> Result<(), NoUsableSlot> {
        Ok(())
    }

    fn delete(&mut self, _event: Event) {}
}

struct UntouchedPmu(bool);

impl Pmu for UntouchedPmu {
    fn slots(&self) -> u32 {
        assert!(!self.0, "its slots were read");
        4
    }

    fn add(&mut self, _event: Event) -> Result<(), NoUsableSlot> {
        assert!(!self.0, "it was touched");
        Ok(())
    }

    fn delete(&mut self, _event: Event) {
        panic!("it was touched");
    }
}

fn request(target: Target, priority: Priority, events: &[Event]) -> Request<'_> {
    Request {
        pmu: 0,
        target,
        priority,
        events,
    }
}

#[test]
fn switches_do_not_allocate() {
    for slots in [2, 100] {
        for policy in [Policy::Changed, Policy::Everything] {
            let mut tree = Tree::new();
            let mut context = Context::new([SilentPmu(slots)], 0).with_policy(policy);
            let mut label = Label::ROOT;
            for event in 0..40 {
                if event % 2 == 0 {
                    let parent = if event % 8 == 0 { Label::ROOT } else { label };
                    label = tree.create(parent).unwrap();
                }
                let target = match event % 4 {
                    0 => Target::System,
                    _ => Target::Label(label),
                };
                let priority = match event % 7 {
                    0 => Priority::Pinned,
                    _ => Priority::Flexible,
                };
                let events = [Event(event)];
                let request = request(target, priority, &events);
                context.add(&tree, request, 0).unwrap();
            }
            let mut tasks = [Task::new(), Task::new()];
            for task in &mut tasks {
                let event = [Event(99)];
                task.add(0, Priority::Flexible, &event).unwrap();
                let next = std::mem::take(task);
                *task = context.switch(&tree, next, Label::ROOT, 0);
            }
            let before = ALLOCATIONS.get();
            let steps: u64 = if cfg!(miri) { 40 } else { 500 };
            for step in 1..steps {
                let label = Label((step * 7 % 20) as u32);
                let now_ns = step * 100_000;
                match step % 5 {
                    0 => context.rotate(now_ns),
                    1 => {
                        let next = std::mem::take(&mut tasks[0]);
                        tasks[0] = context.switch(&tree, next, label, now_ns);
                    }
                    _ => context.enter(&tree, label, now_ns),
                }
            }
            assert_eq!(ALLOCATIONS.get(), before, "{slots} slots, {policy:?}");
        }
    }
}

#[test]
fn pmus_without_events_of_cgroups_are_skipped_whole() {
    enum EitherPmu {
        Counters(Counters),
        Untouched(UntouchedPmu),
    }

    impl Pmu for EitherPmu {
        fn slots(&self) -> u32 {
            match self {
                EitherPmu::Counters(pmu) => pmu.slots(),
                EitherPmu::Untouched(pmu) => pmu.slots(),
            }
        }

        fn add(&mut self, event: Event) -> Result<(), NoUsableSlot> {
            match self {
                EitherPmu::Counters(pmu) => pmu.add(event),
                EitherPmu::Untouched(pmu) => pmu.add(event),
            }
        }

        fn delete(&mut self, event: Event) {
            match self {
                EitherPmu::Counters(pmu) => pmu.delete(event),
                EitherPmu::Untouched(pmu) => pmu.delete(event),
            }
        }
    }

    let mut tree = Tree::new();
    let label = tree.create(Label::ROOT).unwrap();
    let pmus = [
        EitherPmu::Counters(Counters::new(1)),
        EitherPmu::Untouched(UntouchedPmu(false)),
    ];
    let mut context = Context::new(pmus, 0);
    let of_label = request(Target::Label(label), Priority::Pinned, &[Event(1)]);
    context.add(&tree, of_label, 0).unwrap();
    let of_system = Request {
        pmu: 1,
        ..request(Target::System, Priority::Flexible, &[Event(2)])
    };
    context.add(&tree, of_system, 0).unwrap();
    if let Some(EitherPmu::Untouched(pmu)) = context.pmu_mut(1) {
        pmu.0 = true;
    }
    for step in 1..20 {
        context.enter(&tree, Label(step % 2), u64::from(step));
    }
    assert_eq!(context.label(), label);
}
