//! Counts events of processes, or of a command. The fields in which the kernel counts what each task does give what
//! they can. perf's events, which cost time at each context switch, count the rest.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use tiptoe_event::Counter;
use tiptoe_kernel::cgroups::Times;
use tiptoe_kernel::counters::{CountTarget, Support};
use tiptoe_kernel::{CounterSet, ProcessTasks};
use tiptoe_session::StatNote;
use tiptoe_sys::host::perf::Counts;

use super::cgroups::{Field, check_notes, field_of_process, unit, without};
use super::count_sums::{CountKey, CountSource, EventSum, Sums};
use crate::error::Error;

/// Kept between the runs of a command, because loading the BPF programs takes tens of milliseconds.
pub(super) type KeptTasks = Option<Rc<RefCell<ProcessTasks>>>;

pub(super) struct ByProcess {
    tasks: Rc<RefCell<ProcessTasks>>,
    /// perf's events; `None` if fields give all counts.
    set: Option<CounterSet>,
    columns: Vec<Column>,
    start: Instant,
}

struct Column {
    event: String,
    unit: String,
    /// `None` for an event of the set.
    field: Option<Field>,
}

impl ByProcess {
    /// Returns `None` if no field counts a requested event, or if tiptoe may not read the fields here.
    pub(super) fn open(
        groups: &[Vec<Counter<'_>>],
        whom: &CountTarget,
        kept: &mut KeptTasks,
    ) -> Result<Option<ByProcess>, Error> {
        let columns = groups.iter().flatten().map(|counter| Column {
            event: counter.text.to_owned(),
            unit: unit(counter),
            field: field_of_process(counter),
        });
        let columns: Vec<Column> = columns.collect();
        if columns.iter().all(|column| column.field.is_none()) {
            return Ok(None);
        }
        let tasks = match kept {
            Some(tasks) => {
                tasks.borrow_mut().reset(whom)?;
                tasks.clone()
            }
            // Loading fails without rights, or if the kernel's `task_struct` lacks a field. perf's events may count
            // there.
            None => match ProcessTasks::load(whom) {
                Ok(Some(tasks)) => Rc::new(RefCell::new(tasks)),
                _ => return Ok(None),
            },
        };
        *kept = Some(tasks.clone());
        let rest = without(groups, |counter| field_of_process(counter).is_some());
        let set = (!rest.is_empty()).then(|| CounterSet::open(&rest, whom));
        let set = set.transpose()?;
        if matches!(whom, CountTarget::AtExec(_)) {
            tasks.borrow_mut().start()?;
        }
        Ok(Some(ByProcess {
            tasks,
            set,
            columns,
            start: Instant::now(),
        }))
    }
}

impl CountSource for ByProcess {
    fn enable(&mut self) -> Result<(), Error> {
        self.tasks.borrow_mut().start()?;
        if let Some(set) = &self.set {
            set.enable()?;
        }
        self.start = Instant::now();
        Ok(())
    }

    fn disable(&mut self) -> Result<(), Error> {
        if let Some(set) = &self.set {
            set.disable()?;
        }
        Ok(self.tasks.borrow_mut().stop()?)
    }

    fn sums(&mut self, _per_cpu: bool) -> Result<Sums, Error> {
        // The time is at least 1, because counts without time are reported as not counted.
        let elapsed_ns = self.start.elapsed().as_nanos().max(1) as u64;
        let line = self.tasks.borrow().read()?;
        let set = self.set.as_ref().map(|set| Sums::of(set, false));
        let mut of_set = set.transpose()?.unwrap_or_default().0.into_iter();
        let row = |(event, column): (usize, &Column)| {
            let key = CountKey {
                event,
                ..CountKey::default()
            };
            Some(match column.field {
                None => EventSum {
                    key,
                    ..of_set.next()?
                },
                Some(field) => EventSum {
                    key,
                    event: column.event.clone(),
                    cgroup: None,
                    is_removed: false,
                    unit: column.unit.clone(),
                    scale: 1.0,
                    is_supported: true,
                    is_tracepoint: false,
                    places: vec![(
                        0,
                        Some(Counts {
                            count: field(&line),
                            time_enabled_ns: elapsed_ns,
                            time_running_ns: elapsed_ns,
                        }),
                    )],
                },
            })
        };
        Ok(Sums(
            self.columns.iter().enumerate().filter_map(row).collect(),
        ))
    }

    fn tidy(&mut self) -> Result<(), Error> {
        Ok(self.tasks.borrow_mut().tidy()?)
    }

    fn is_complete(&self) -> bool {
        self.set.as_ref().is_none_or(CounterSet::is_complete)
    }

    fn at_switches<'c>(&self, groups: &[Vec<Counter<'c>>]) -> Vec<Vec<Counter<'c>>> {
        let mut events = self.set.iter().flat_map(CounterSet::events);
        match events.any(|(_, support)| support != Support::None) {
            true => without(groups, |counter| field_of_process(counter).is_some()),
            false => Vec::new(),
        }
    }

    fn finish(&self) -> Result<Option<(Vec<StatNote>, Times)>, Error> {
        let (checks, times) = self.tasks.borrow().checks();
        Ok(Some((check_notes(&checks, false), times)))
    }
}
