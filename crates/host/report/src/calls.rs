//! Recorded calls, a line each while the trace runs; and what became of those without one.

use tiptoe_session::{Call, Event, Records, Session};

use crate::number::{short_percent, since_start};
use crate::table::counted;
use crate::{event_name, printable, printable_json, printable_lines};

/// One call as JSON, without an end of line: its keys are those of [`Call`].
pub fn call_json(call: &Call) -> Result<String, serde_json::Error> {
    printable_json(serde_json::to_string(call))
}

/// One call on one line: seconds since the start, the thread, the event, two arguments.
pub fn call(call: &Call) -> String {
    let at = since_start(call.at_ns);
    let who = format!("{}/{}", printable(call.comm), call.tid);
    let event = event_name(call.event);
    let [arg0, arg1] = [call.arg0, call.arg1].map(argument);
    printable_lines(&format!("{at}  {who:<23}  {event}  {arg0} {arg1}"))
}

/// A small number as such, and what could be an address or a set of flags as bits.
fn argument(value: u64) -> String {
    const SMALL: i64 = 1 << 16;
    match value as i64 {
        small if (-SMALL..=SMALL).contains(&small) => small.to_string(),
        _ => format!("{value:#x}"),
    }
}

/// Which calls have no line, each in one sentence.
pub(crate) fn notes(session: &Session) -> impl Iterator<Item = String> {
    let spent = session.budget.map(short_percent);
    let unpaid = match spent {
        Some(budget) => format!("only counted: the budget of {budget}% was spent"),
        None => "only counted: there was no room for a ring of their thread's".to_owned(),
    };
    let lost = "not recorded: they came faster than they could be read";
    let sentences = [
        sentence(session, |records| records.only_counted, &unpaid),
        sentence(session, |records| records.lost, lost),
    ];
    sentences.into_iter().flatten()
}

/// `3 calls of EVENT were WHAT`; `None` where there were none.
fn sentence(session: &Session, number: fn(&Records) -> u64, what: &str) -> Option<String> {
    let events = session.events.iter();
    let recorded = events.filter_map(|event| Some((event, number(&event.records?))));
    let some: Vec<(&Event, u64)> = recorded.filter(|(_, number)| *number > 0).collect();
    let (most, of_it) = some.iter().max_by_key(|(_, number)| number)?;
    let sum = some
        .iter()
        .fold(0_u64, |sum, (_, n)| sum.saturating_add(*n));
    let event = event_name(&most.event);
    let whose = match sum == *of_it {
        true => format!("of {event}"),
        false => format!("(most of {event})"),
    };
    let verb = if sum == 1 { "was" } else { "were" };
    Some(format!(
        "{} {whose} {verb} {what}",
        counted(sum as usize, "call")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_line_whatever_it_is_called() {
        let one = Call {
            at_ns: 1_002_003_004,
            tid: 42,
            comm: "a\nb",
            event: "uprobe:redis-server:dictFind",
            arg0: u64::MAX,
            arg1: 0x7fff_1234_5678,
        };
        let line = call(&one);
        assert_eq!(
            line,
            "     1.002003004  a\\nb/42                  redis-server:dictFind  -1 0x7fff12345678"
        );
        let json = call_json(&one).expect("plain");
        assert!(
            json.starts_with("{\"at_ns\":1002003004,\"tid\":42,"),
            "{json}"
        );
        assert!(json.ends_with("\"arg0\":18446744073709551615,\"arg1\":140733498807928}"));
    }
}
