//! The report of a plan as text and as JSON.

use std::fmt::Write;

use tiptoe_event::PrintableJson;

use super::rows::{EventRow, PlanReport, PolicyRow};
use crate::failure::Failure;

pub fn json(report: &PlanReport) -> Result<String, Failure> {
    let json = serde_json::to_string(report);
    let json = json.map_err(|error| Failure::NoJson("plan has", error))?;
    Ok(PrintableJson(&json).to_string() + "\n")
}

pub fn text(report: &PlanReport) -> String {
    let mut text = heading(report);
    let own = report.events.iter().map(|row| event_cells(row, ""));
    let read = report.read_events.iter();
    let read = read.map(|row| event_cells(row, ", read"));
    let events = own.chain(read);
    let head = [
        "event",
        "of",
        "counted",
        "least",
        "not counted",
        "error",
        "worst",
    ];
    text += &table(&head, events);
    text.push('\n');
    let policies = report.policies.iter().map(|row| policy_cells(row, report));
    let head = [
        "at a switch of cgroups",
        "adds/s",
        "deletes/s",
        "per switch",
        "reads",
        "cost",
        "blind",
    ];
    text += &table(&head, policies);
    text.push('\n');
    for row in report.events.iter().filter(|row| row.in_error > 0) {
        let what = match row.of {
            "system" => "the system".to_owned(),
            _ => format!("{} of {} cgroups", row.in_error, row.each.len()),
        };
        let _ = writeln!(
            text,
            "note: {} is in error for {what}: more is pinned than there are counters",
            row.event
        );
    }
    let _ = writeln!(
        text,
        "adds, deletes and cost: of each CPU; estimated at {} ns for each (--op-ns)",
        report.operation_ns
    );
    if let Some(row) = report.policies.iter().find(|row| row.policy == "read") {
        let reads = match row.reads {
            0 => String::new(),
            _ => format!(" and {} ns for each event (--read-ns)", report.read_ns),
        };
        let how = match report.switch_ns {
            0 => "from counts that the kernel keeps for tasks, at no cost at switches".to_owned(),
            _ => format!(
                "one set of events on each CPU; estimated at {} ns a switch (--charge-ns){reads}",
                report.charge_ns
            ),
        };
        let _ = writeln!(
            text,
            "read: as `tiptoe stat --for-each-cgroup` counts, {how}"
        );
    } else if report.cgroups > 0 {
        let _ = writeln!(
            text,
            "note: `tiptoe stat --for-each-cgroup` reads {} events at most",
            tiptoe_collector::MOST_READ
        );
    }
    text
}

fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    tiptoe_report::table_lines(heads, &rows).join("\n") + "\n"
}

fn heading(report: &PlanReport) -> String {
    let of = match (report.cgroups, report.is_of_system) {
        (0, _) => "the system".to_owned(),
        (1, false) => "1 cgroup".to_owned(),
        (1, true) => "1 cgroup and the system".to_owned(),
        (cgroups, false) => format!("each of {cgroups} cgroups"),
        (cgroups, true) => format!("each of {cgroups} cgroups and the system"),
    };
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let rate = report.switches as f64 / report.seconds / report.cpus as f64;
    let origin = if report.recorded {
        "recorded"
    } else {
        "made-up"
    };
    format!(
        "plan for {of}: {} counter{} on {}\nsimulated {} s with {rate:.0} {origin} switches a second on each CPU, turns after {} ms\n\n",
        report.slots,
        plural(report.slots as usize),
        match report.cpus {
            1 => "1 CPU".to_owned(),
            cpus => format!("each of {cpus} CPUs"),
        },
        report.seconds,
        report.turn_ns as f64 / 1e6,
    )
}

fn event_cells(row: &EventRow, how: &str) -> Vec<String> {
    let of_cgroups = row.of == "cgroups";
    let one = |value| {
        if of_cgroups {
            percent(value, 1)
        } else {
            String::new()
        }
    };
    let not_counted = match (of_cgroups, row.not_counted) {
        (true, n) => format!("{n} of {}", row.each.len()),
        (false, 0) => String::new(),
        (false, _) => "all of it".to_owned(),
    };
    vec![
        row.event.clone(),
        match of_cgroups {
            true => format!("each cgroup{how}"),
            false => format!("the system{how}"),
        },
        percent(row.counted_percent, 1),
        one(row.least_percent),
        not_counted,
        percent(row.error_percent, 2),
        if of_cgroups {
            percent(row.worst_error_percent, 2)
        } else {
            String::new()
        },
    ]
}

fn policy_cells(row: &PolicyRow, report: &PlanReport) -> Vec<String> {
    let seconds = report.seconds * report.cpus as f64;
    let rate = |count: u64| format!("{:.0}", count as f64 / seconds);
    let words = match row.policy {
        "everything" => "all events out and in",
        "changed" => "only what changes",
        _ => "nothing, but read",
    };
    vec![
        words.to_owned(),
        rate(row.added),
        rate(row.deleted),
        format!("{:.1}", row.per_switch),
        row.reads.to_string(),
        percent(Some(row.cost_percent), 3),
        percent(row.blind_percent, 3),
    ]
}

fn percent(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}%"))
}
