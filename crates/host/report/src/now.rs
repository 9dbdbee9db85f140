//! The tables of threads that wait at one moment, and their deadlocks.

use tiptoe_session::{Now, WaitingThread};

use crate::columns::joined;
use crate::grid::{Cells, Grid, more_line};
use crate::number::time;
use crate::{Options, printable};

pub(crate) fn blocks(now: &Now, options: &Options) -> Vec<Vec<String>> {
    let (idle, held): (Vec<&WaitingThread>, Vec<&WaitingThread>) =
        now.waits.iter().partition(|w| w.idle);
    let mut blocks = vec![match held.is_empty() {
        true => vec!["no thread waits for a lock".to_owned()],
        false => table(&held, "waits for", options),
    }];
    if !idle.is_empty() {
        blocks.push(table(&idle, "waits at", options));
    }
    let wait = |tid: &u32| now.waits.iter().find(|wait| wait.tid == *tid);
    let rings = now.deadlocks.iter();
    blocks.extend(rings.map(|ring| {
        let waits: Vec<&WaitingThread> = ring.iter().filter_map(wait).collect();
        options.sentence(&deadlock(&waits))
    }));
    blocks
}

fn waiter(wait: &WaitingThread) -> String {
    format!("{} {}", wait.tid, printable(&wait.comm))
}

fn holders(wait: &WaitingThread) -> String {
    match (wait.holder, wait.readers) {
        (Some(tid), _) => {
            let comm = wait.holder_comm.as_deref().unwrap_or_default();
            format!("{tid} {}", printable(comm)).trim_end().to_owned()
        }
        (None, Some(1)) => "1 reader".to_owned(),
        (None, Some(readers)) => format!("{readers} readers"),
        (None, None) => "-".to_owned(),
    }
}

fn lock(wait: &WaitingThread) -> String {
    with_mode(&wait.lock, wait.mode.as_deref())
}

pub(crate) fn with_mode(lock: &str, mode: Option<&str>) -> String {
    let mode = mode.map(|mode| format!(" ({mode})"));
    printable(lock) + &mode.unwrap_or_default()
}

fn table(waits: &[&WaitingThread], heading: &str, options: &Options) -> Vec<String> {
    let shown = options.shown(waits.len());
    let mut grid = Grid::new(&[], heading.to_owned())
        .with_words(&["thread", "waits", "type", "held by"])
        .with_tail("from")
        .with_spare(&["type"]);
    for wait in &waits[..shown] {
        let asleep = wait.asleep_ns;
        let asleep = asleep.map_or("-".to_owned(), |ns| format!(">={}", time(ns as f64)));
        let kind = printable(&wait.kind);
        grid.add_row(Cells {
            cells: vec![waiter(wait), asleep, kind, holders(wait)],
            name: lock(wait),
            tail: printable(&wait.callsite),
            ..Cells::default()
        });
    }
    let mut lines = grid.lines(options);
    lines.extend(more_line(waits.len() - shown, options));
    lines
}

/// Describes a ring of threads, each of which waits for the next thread's lock or end.
pub(crate) fn deadlock(ring: &[&WaitingThread]) -> String {
    let parts = ring.iter().enumerate().map(|(at, wait)| {
        let (what, next) = (lock(wait), waiter(ring[(at + 1) % ring.len()]));
        let (what, next) = (joined(&what), joined(&next));
        let who = match at {
            0 => joined(&waiter(wait)),
            _ => "who".to_owned(),
        };
        match &*wait.kind {
            "join" => format!("{who} waits for the end of {next}"),
            _ => format!("{who} waits for {what}, which {next} holds"),
        }
    });
    format!("deadlock: {}", parts.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notes;
    use tiptoe_session::Session;

    #[test]
    fn a_deadlock_is_one_sentence() {
        let wait = |tid, name: &str, lock: &str, holder| WaitingThread {
            tid,
            comm: name.into(),
            lock: lock.into(),
            kind: "mutex".into(),
            callsite: "p:f+0x9".into(),
            asleep_ns: Some(1_500_000_000),
            holder,
            holder_comm: holder.map(|tid| if tid == 7 { "one" } else { "t\two" }.into()),
            ..WaitingThread::default()
        };
        let now = Now {
            waits: vec![
                wait(7, "one", "p:a", Some(8)),
                wait(8, "t\two", "p:b", Some(7)),
                WaitingThread {
                    readers: Some(3),
                    asleep_ns: None,
                    ..wait(9, "w", "p:rw", None)
                },
            ],
            deadlocks: vec![vec![7, 8]],
        };
        let text = blocks(&now, &Options::default()).concat();
        let want = [
            "thread   waits    type   held by    waits for  from",
            "7 one    >=1.50s  mutex  8 t\\two    p:a        p:f+0x9",
            "8 t\\two  >=1.50s  mutex  7 one      p:b        p:f+0x9",
            "9 w      -        mutex  3 readers  p:rw       p:f+0x9",
            "deadlock: 7 one waits for p:a, which 8 t\\two holds, who waits for p:b, which 7 one holds",
        ];
        assert_eq!(text, want);
        let session = Session {
            now: Some(now),
            ..Session::default()
        };
        let notes = notes::lines(&session, &Options::default());
        let timed = "note: waits are timed from when the thread last ran:";
        assert!(
            matches!(&notes[..], [one] if one.starts_with(timed)),
            "{notes:?}"
        );
        let join = WaitingThread {
            kind: "join".into(),
            ..wait(5, "main", "0x7000", Some(7))
        };
        let ring = [&join, &wait(7, "one", "p:a", Some(5))];
        assert_eq!(
            deadlock(&ring).replace('\u{a0}', " "),
            "deadlock: 5 main waits for the end of 7 one, who waits for p:a, which 5 main holds"
        );
        let none = blocks(&Now::default(), &Options::default()).concat();
        assert_eq!(none, ["no thread waits for a lock"]);
    }
}
