//! Tests that the system's and cgroups' events share scarce slots fairly.
#![cfg(not(miri))]

mod support;

use support::Counters;
use tiptoe_schedule::{Context, Event, GroupId, Label, Priority, Request, Target, Tree};

const MS: u64 = 1_000_000;

struct Cpu {
    context: Context<Counters>,
    tree: Tree,
    system: Vec<GroupId>,
    cgroups: Vec<Vec<GroupId>>,
    now_ns: u64,
}

impl Cpu {
    fn new(slots: u32, system: u32, cgroups: u32, each: u32) -> Cpu {
        let mut cpu = Cpu {
            context: Context::new([Counters::new(slots)], 0),
            tree: Tree::new(),
            system: Vec::new(),
            cgroups: Vec::new(),
            now_ns: 0,
        };
        let mut event = 0;
        let mut add = |cpu: &mut Cpu, target| {
            event += 1;
            let request = Request {
                pmu: 0,
                target,
                priority: Priority::Flexible,
                events: &[Event(event)],
            };
            cpu.context.add(&cpu.tree, request, 0).unwrap()
        };
        cpu.system = (0..system).map(|_| add(&mut cpu, Target::System)).collect();
        for _ in 0..cgroups {
            let label = cpu.tree.create(Label::ROOT).unwrap();
            let groups = (0..each).map(|_| add(&mut cpu, Target::Label(label)));
            let groups = groups.collect();
            cpu.cgroups.push(groups);
        }
        cpu
    }

    fn run(&mut self, slices_ns: &[u64], for_ns: u64) {
        let end = self.now_ns + for_ns;
        let mut turn = self.now_ns + 4 * MS;
        for cgroup in (0..slices_ns.len()).cycle() {
            let label = Label(cgroup as u32 + 1);
            self.context.enter(&self.tree, label, self.now_ns);
            let next = self.now_ns + slices_ns[cgroup];
            while turn <= next {
                self.context.rotate(turn);
                turn += 4 * MS;
            }
            self.now_ns = next;
            if next >= end {
                return;
            }
        }
    }

    /// Returns the least and greatest share, in percent.
    fn shares(&self, ids: &[GroupId]) -> (u64, u64) {
        let share = |id: &GroupId| {
            let times = self.context.times(*id, self.now_ns).unwrap();
            times.running_ns * 100 / times.enabled_ns.max(1)
        };
        let shares: Vec<u64> = ids.iter().map(share).collect();
        (*shares.iter().min().unwrap(), *shares.iter().max().unwrap())
    }

    fn all(&self) -> (u64, u64) {
        let of_cgroups = self.cgroups.iter().map(|ids| self.shares(ids));
        of_cgroups.fold(self.shares(&self.system), |(least, most), (low, high)| {
            (least.min(low), most.max(high))
        })
    }
}

#[test]
fn the_system_s_events_and_cgroups_have_equal_shares() {
    for (slots, system, each, slice_ns) in [
        (4, 4, 4, 10_000),
        (4, 4, 4, MS),
        (4, 4, 4, 17 * MS),
        (1, 1, 1, MS / 10),
        (4, 6, 2, MS / 3),
        (3, 2, 4, 5 * MS),
    ] {
        let mut cpu = Cpu::new(slots, system, 6, each);
        cpu.run(&[slice_ns; 6], 2_000 * MS);
        let even = u64::from(100 * slots / (system + each));
        let (least, most) = cpu.all();
        let what = format!("{slots} slots, {system} and {each} events, {slice_ns} ns");
        assert!(
            least + 5 >= even && most <= even + 5,
            "{what}: {least} to {most}%, {even} is even"
        );
    }
}

#[test]
fn many_cgroups_that_run_seldom_do_not_starve_the_system() {
    let mut cpu = Cpu::new(2, 2, 300, 2);
    cpu.run(&[50_000; 300], 6_000 * MS);
    let (least, most) = cpu.shares(&cpu.system);
    assert!(least >= 45 && most <= 55, "{least} to {most}%");
    let all = cpu.cgroups.iter().flatten().map(|id| {
        let times = cpu.context.times(*id, cpu.now_ns).unwrap();
        times.running_ns * 100 / times.enabled_ns
    });
    let mean = all.sum::<u64>() / 600;
    assert!((45..=55).contains(&mean), "{mean}%");
}

#[test]
fn cgroups_that_run_once_do_not_starve_the_system() {
    let mut cpu = Cpu::new(4, 4, 1000, 20);
    cpu.run(&[200_000; 1000], 200 * MS);
    let even = 100 * 4 / 24;
    let (least, most) = cpu.shares(&cpu.system);
    assert!(least + 6 >= even && most <= even + 6, "{least} to {most}%");
}

#[test]
fn cgroups_are_not_starved_by_events_that_stay() {
    let mut cpu = Cpu::new(4, 4, 2, 1);
    cpu.run(&[MS / 10, MS / 10], 1_000 * MS);
    let (least, most) = cpu.all();
    assert!(least >= 75 && most <= 85, "{least} to {most}%");
}

#[test]
fn cgroups_that_run_for_different_times_have_equal_shares() {
    let mut cpu = Cpu::new(2, 2, 3, 2);
    cpu.run(&[MS / 20, MS, 30 * MS], 10_000 * MS);
    let (least, most) = cpu.all();
    assert!(least >= 44 && most <= 56, "{least} to {most}%");
}

#[test]
fn slots_do_not_change_owner_at_each_switch_between_turns() {
    let mut cpu = Cpu::new(4, 4, 6, 4);
    cpu.run(&[MS / 100; 6], 400 * MS);
    let of_system = |(_, event): &&(bool, Event)| event.0 <= 4;
    let log = &cpu.context.pmu(0).unwrap().log;
    let moved = log.iter().filter(of_system).count();
    // Each of the 40,000 switches could move four events.
    assert!(moved < 40_000 / 10, "{moved}");
}

#[test]
fn every_group_gets_slots_eventually_whatever_its_size() {
    let mut context = Context::new([Counters::new(4)], 0);
    let tree = Tree::new();
    let mut add = |events: std::ops::Range<u32>| {
        let events: Vec<Event> = events.map(Event).collect();
        let request = Request {
            pmu: 0,
            target: Target::System,
            priority: Priority::Flexible,
            events: &events,
        };
        context.add(&tree, request, 0).unwrap()
    };
    let ids = [add(0..4), add(4..7), add(7..9), add(9..10), add(10..11)];
    for turn in 1..1_000 {
        context.rotate(turn * 4 * MS);
    }
    for id in ids {
        let times = context.times(id, 4_000 * MS).unwrap();
        assert!(
            times.running_ns * 100 / times.enabled_ns > 25,
            "{id:?}: {times:?}"
        );
    }
}
