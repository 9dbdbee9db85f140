//! The last two lines of a report: tiptoe's own CPU time, and the cost of tracing for the target.

use tiptoe_session::{Basis, Calibration, Cost, Event, FunctionNote, Note, Programs, Session, Via};

use crate::Options;
use crate::number::{counted, grouped, percent, plural, seconds, short_percent, time, unit_ns};

/// Returns the line on tiptoe's own CPU time, which the cost of tracing excludes; `None` if the time is unknown.
fn own_line(session: &Session) -> Option<String> {
    let used = seconds(session.own_cpu_ns?);
    let stop = session.longest_stop_ns.map_or_else(String::new, |ns| {
        format!(", and stopped a thread for at most {}", time(ns as f64))
    });
    Some(format!("tiptoe itself used {used} of CPU time{stop}"))
}

pub(crate) fn last_lines(session: &Session, cost: String, options: &Options) -> Vec<String> {
    let lines = own_line(session).into_iter().chain([cost]);
    lines.flat_map(|line| options.sentence(&line)).collect()
}

/// Returns the name of the CPU time that the cost is a share of.
pub(crate) fn base(session: &Session) -> &'static str {
    match session.cpus {
        Some(_) => "all CPUs' time",
        None => "the target's CPU time",
    }
}

/// Returns a note if the counted calls cost more than `budget`, a share of the target's CPU time. The budget does not
/// limit counting.
pub fn above_budget(session: &Session, budget: f64) -> Option<Note> {
    let is_counted = |event: &&Event| {
        let followed = event.ends.is_none_or(|ends| ends.only_counted > 0);
        let recorded = event.records.is_none_or(|records| records.only_counted > 0);
        event.via == Via::Agent && followed && recorded
    };
    let mut events = session.events.iter().filter(is_counted);
    let cost_ns: f64 = events.clone().map(|event| event.cost_ns).sum();
    let budget_ns = budget * session.cpu_ns as f64;
    // A CPU time of 0 may be unknown, because the process ended at once.
    (session.cpu_ns > 0 && cost_ns > budget_ns).then(|| {
        let budget_millionths = (budget * 1e6).round() as u64;
        // A trap (a breakpoint byte) that was hit too often was disabled, so its count is a lower bound.
        let has_least = events.any(|event| event.at_least);
        FunctionNote::AboveBudget {
            budget_millionths,
            has_least,
        }
        .into()
    })
}

pub(crate) fn above_budget_sentence(budget_millionths: u64, has_least: bool) -> String {
    let budget = short_percent(budget_millionths as f64 / 1e6);
    let unless = match has_least {
        true => ", unless its function has `>=`",
        false => "",
    };
    format!(
        "the cost is above the budget of {budget}%: the budget limits what is timed or recorded, but each call is \
         still counted{unless}; probe fewer functions to lower the cost (column `cost`)"
    )
}

/// Returns `cost of tracing: 0.31% of the target's CPU time (0.22 to 0.43, estimated from N hits x C ns, calibrated on
/// this machine)`.
pub fn cost_line(cost: &Cost) -> String {
    line(cost, "the target's CPU time")
}

pub(crate) fn line(cost: &Cost, of: &str) -> String {
    if let Some(programs) = &cost.programs {
        return measured(cost, programs, of);
    }
    if cost.fraction == 0.0 && cost.hits > 0 && cost.unit_ns > 0.0 {
        let (hits, ns) = (counted(cost.hits, "hit"), unit_ns(cost.unit_ns));
        return format!(
            "cost of tracing: {hits} x {ns} ns; the share is unknown, because {of} was not read before the end"
        );
    }
    let (share, low, high) = (
        percent(cost.fraction),
        percent(cost.low),
        percent(cost.high),
    );
    let basis = match cost.basis {
        Basis::Estimated => format!(
            "estimated from {} {} x {} ns{}, calibrated on this machine{}",
            cost.hits,
            plural(cost.hits, "hit"),
            unit_ns(cost.unit_ns),
            forks(cost),
            match cost.calibrated {
                Some(Calibration::Unsteady) => ", whose speed changed meanwhile",
                _ => "",
            }
        ),
        Basis::Measured => "measured by switching tracing off and on".to_owned(),
    };
    let rejected = cost.rejected_unit_ns.map_or_else(String::new, |ns| {
        let ns = unit_ns(ns);
        format!("; rejected hits are not included: about {ns} ns each")
    });
    format!("cost of tracing: {share}% of {of} ({low} to {high}, {basis}){rejected}")
}

fn forks(cost: &Cost) -> String {
    cost.forks.map_or_else(String::new, |forks| {
        let forked = counted(forks.count, "fork");
        format!(" and {forked} x {}", time(forks.unit_ns))
    })
}

/// Returns the line for a measured cost, with the time for all processes if BPF programs ran for other processes.
fn measured(cost: &Cost, programs: &Programs, of: &str) -> String {
    let share = percent(cost.fraction);
    let runs = counted(programs.runs, "run");
    let each = unit_ns(cost.unit_ns);
    let others = match (programs.all_runs, programs.all_run_ns) {
        (Some(all), Some(ns)) if all > programs.runs => {
            let (all, took) = (grouped(all), time(ns as f64));
            format!("; {all} runs for all processes took {took}")
        }
        _ => String::new(),
    };
    format!(
        "cost of tracing: {share}% of {of} (measured: {runs} of BPF programs x {each} ns{others})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_session::Ends;

    #[test]
    fn programs_are_measured_of_the_target_and_of_all() {
        let mut programs = Programs {
            runs: 2000,
            run_ns: 1_000_000,
            ..Programs::default()
        };
        let cost = Cost::measured(programs, 100_000_000);
        let own = "cost of tracing: 1.00% of the target's CPU time \
                   (measured: 2,000 runs of BPF programs x 500 ns";
        assert_eq!(cost_line(&cost), format!("{own})"));
        programs.all_runs = Some(30_000);
        programs.all_run_ns = Some(3_000_000);
        let cost = Cost::measured(programs, 100_000_000);
        let all = "; 30,000 runs for all processes took 3.00ms)";
        assert_eq!(cost_line(&cost), format!("{own}{all}"));
        assert!((cost.high - 0.03).abs() < 1e-9);
    }

    #[test]
    fn tiptoes_own_cpu_time_is_printed_if_the_session_has_it() {
        let mut session = Session::default();
        assert_eq!(own_line(&session), None);
        session.own_cpu_ns = Some(120_000_000);
        let used = "tiptoe itself used 0.120 s of CPU time";
        assert_eq!(own_line(&session).as_deref(), Some(used));
        session.longest_stop_ns = Some(1_200_000);
        let both = format!("{used}, and stopped a thread for at most 1.20ms");
        assert_eq!(own_line(&session), Some(both));
    }

    #[test]
    fn a_cost_above_the_budget_has_its_reason() {
        let event = |via, cost_ns| Event {
            via,
            cost_ns,
            ..Event::default()
        };
        let mut session = Session {
            cpu_ns: 1_000_000,
            events: vec![event(Via::Agent, 9_000.0), event(Via::Kernel, 90_000.0)],
            ..Session::default()
        };
        assert_eq!(above_budget(&session, 0.01), None);
        session.events.push(event(Via::Agent, 2_000.0));
        let note = FunctionNote::AboveBudget {
            budget_millionths: 10_000,
            has_least: false,
        };
        assert_eq!(above_budget(&session, 0.01), Some(note.into()));
        // All calls of this event were traced to their return, which the budget does limit.
        session.events[2].ends = Some(Ends::default());
        assert_eq!(above_budget(&session, 0.01), None);
    }

    #[test]
    fn a_cost_above_the_budget_does_not_claim_a_disabled_traps_calls() {
        let trap = Event {
            via: Via::Agent,
            cost_ns: 20_000.0,
            at_least: true,
            ..Event::default()
        };
        let session = Session {
            cpu_ns: 1_000_000,
            events: vec![trap],
            ..Session::default()
        };
        let note = FunctionNote::AboveBudget {
            budget_millionths: 10_000,
            has_least: true,
        };
        assert_eq!(above_budget(&session, 0.01), Some(note.into()));
    }

    #[test]
    fn a_share_of_an_unread_time_is_unknown() {
        let cost = Cost {
            hits: 56,
            unit_ns: 2.41,
            ..Cost::default()
        };
        let said = "cost of tracing: 56 hits x 2.41 ns; the share is unknown, because the target's CPU time was not \
                    read before the end";
        assert_eq!(cost_line(&cost), said);
    }

    #[test]
    fn an_unsteady_calibration_is_said() {
        let mut cost = Cost::default();
        assert!(cost_line(&cost).ends_with("calibrated on this machine)"));
        cost.calibrated = Some(Calibration::Unsteady);
        let end = "calibrated on this machine, whose speed changed meanwhile)";
        assert!(cost_line(&cost).ends_with(end), "{}", cost_line(&cost));
    }

    #[test]
    fn rejected_hits_are_named_after_the_cost() {
        let mut cost = Cost::default();
        assert!(!cost_line(&cost).contains("rejected"));
        cost.rejected_unit_ns = Some(1.25);
        let end = "on this machine); rejected hits are not included: about 1.25 ns each";
        assert!(cost_line(&cost).ends_with(end), "{}", cost_line(&cost));
    }
}
