//! Test cases as text. Each line takes 1 ms; `;` separates the changes of a line.
//!
//! In `enter a -> S A !P | -T +A`, the groups S and A must count afterwards, P must be in error, and the PMU must only
//! have deleted T and added A. After `|`, nothing means that no group was touched. Without `|`, touched groups are not
//! checked; without `->`, nothing is.

use std::collections::{BTreeMap, BTreeSet};

use tiptoe_schedule::{
    Context, Event, GroupId, Label, Priority, Request, State, Target, Task, Tree,
};

use super::Counters;

pub struct Script {
    pub context: Context<Counters>,
    pub tree: Tree,
    pub now_ns: u64,
    labels: BTreeMap<String, Label>,
    pub groups: BTreeMap<String, (GroupId, Vec<Event>)>,
    events: u32,
    tasks: BTreeMap<String, Task>,
    task: String,
}

#[track_caller]
pub fn check(name: &str, slots: u32, text: &str) -> Script {
    let mut script = Script::new(slots);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        script
            .line(line)
            .unwrap_or_else(|what| panic!("{name}: `{line}`: {what}"));
    }
    script
}

impl Script {
    pub fn new(slots: u32) -> Script {
        Script {
            context: Context::new([Counters::new(slots)], 0),
            tree: Tree::new(),
            now_ns: 0,
            labels: BTreeMap::from([(".".to_owned(), Label::ROOT)]),
            groups: BTreeMap::new(),
            events: 0,
            tasks: BTreeMap::new(),
            task: "-".to_owned(),
        }
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        self.now_ns += 1_000_000;
        let pmu = self.context.pmu_mut(0).unwrap();
        pmu.work += 1_000_000;
        pmu.log.clear();
        let (change, expected) = line.split_once("->").unwrap_or((line, ""));
        for change in change.split(';') {
            let words: Vec<&str> = change.split_whitespace().collect();
            self.change(&words)?;
        }
        if line.contains("->") {
            self.compare(expected)
        } else {
            Ok(())
        }
    }

    fn change(&mut self, words: &[&str]) -> Result<(), String> {
        let now = self.now_ns;
        match *words {
            ["add", name, target, ref rest @ ..] => return self.add(name, target, rest),
            ["enter", label] => {
                let label = self.label(label);
                self.context.enter(&self.tree, label, now);
            }
            ["task", task, label] => {
                let label = self.label(label);
                let next = self.tasks.remove(task).unwrap_or_default();
                let left = self.context.switch(&self.tree, next, label, now);
                let left_name = core::mem::replace(&mut self.task, task.to_owned());
                self.tasks.insert(left_name, left);
            }
            ["create", label] => {
                self.label(label);
            }
            ["delete", label] => {
                let label = self.label(label);
                self.context.forget(&self.tree, label, now);
                assert!(self.tree.delete(label));
            }
            ["remove", name] => {
                let (id, _) = self.groups.remove(name).ok_or("no such group")?;
                self.context
                    .remove(&self.tree, id, now)
                    .ok_or("not there")?;
            }
            ["off", name] => self
                .context
                .disable(self.groups[name].0, now)
                .ok_or("not there")?,
            ["on", name] => self
                .context
                .enable(self.groups[name].0, now)
                .ok_or("not there")?,
            ["rotate"] => self.context.rotate(now),
            ["wait"] => {}
            _ => return Err("not understood".to_owned()),
        }
        Ok(())
    }

    /// Runs `add NAME system|task|task:T|LABEL [pinned] [xN] [rival]`. `xN`: N events; `rival`: only one rival event
    /// counts at a time.
    fn add(&mut self, name: &str, target: &str, rest: &[&str]) -> Result<(), String> {
        let priority = match rest.contains(&"pinned") {
            true => Priority::Pinned,
            false => Priority::Flexible,
        };
        let count = rest
            .iter()
            .find_map(|word| word.strip_prefix('x'))
            .map_or(1, |n| n.parse().unwrap());
        let events: Vec<Event> = (self.events..self.events + count).map(Event).collect();
        self.events += count;
        if rest.contains(&"rival") {
            self.context.pmu_mut(0).unwrap().rivals.extend(&events);
        }
        let id = match target.strip_prefix("task:") {
            Some(task) => {
                let task = self.tasks.entry(task.to_owned()).or_default();
                task.add(0, priority, &events)
            }
            None => {
                let target = match target {
                    "system" => Target::System,
                    "task" => Target::Task,
                    label => Target::Label(self.label(label)),
                };
                let request = Request {
                    pmu: 0,
                    target,
                    priority,
                    events: &events,
                };
                self.context.add(&self.tree, request, self.now_ns)
            }
        };
        let id = id.map_err(|error| error.to_string())?;
        self.groups.insert(name.to_owned(), (id, events));
        Ok(())
    }

    /// Returns or adds the label at a path: `a/b` is inside `a`.
    pub fn label(&mut self, path: &str) -> Label {
        if let Some(label) = self.labels.get(path) {
            return *label;
        }
        let parent = path.rsplit_once('/').map_or(".", |(parent, _)| parent);
        let parent = self.label(parent);
        let label = self.tree.create(parent).unwrap();
        self.labels.insert(path.to_owned(), label);
        label
    }

    fn compare(&self, expected: &str) -> Result<(), String> {
        let (running, touched) = expected
            .split_once('|')
            .map_or((expected, None), |(r, t)| (r, Some(t)));
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<BTreeSet<_>>()
        };
        let counts = self.context.pmu(0).unwrap().running();
        let mut found = BTreeSet::new();
        for (name, (id, events)) in &self.groups {
            let on = events.iter().filter(|event| counts.contains(event)).count();
            assert!(on == 0 || on == events.len(), "half of {name} counts");
            let in_error = self.context.state(*id) == Some(State::Error);
            match (on > 0, in_error) {
                (true, _) => found.insert(name.clone()),
                (false, true) => found.insert(format!("!{name}")),
                _ => false,
            };
        }
        if found != words(running) {
            return Err(format!("found {found:?}"));
        }
        let touched_now = self.touched();
        match touched {
            Some(touched) if words(touched) != touched_now => {
                Err(format!("touched {touched_now:?}"))
            }
            _ => Ok(()),
        }
    }

    fn touched(&self) -> BTreeSet<String> {
        let log = &self.context.pmu(0).unwrap().log;
        let word = |(added, event): &(bool, Event)| {
            let sign = if *added { '+' } else { '-' };
            let mut groups = self.groups.iter();
            let found = groups.find(|(_, (_, events))| events.contains(event));
            format!("{sign}{}", found.map_or("?", |(name, _)| name))
        };
        log.iter().map(word).collect()
    }

    pub fn times(&self, name: &str) -> tiptoe_schedule::Times {
        self.context
            .times(self.groups[name].0, self.now_ns)
            .unwrap()
    }
}
