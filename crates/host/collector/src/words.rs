//! Formats numbers and lists for sentences.

use tiptoe_attach::Attached;
use tiptoe_session::Dropped;
use tiptoe_sys::host::Process;

const FEW: usize = 8;

/// Names the first items of a list, and the number of further items.
pub fn few(all: &[String]) -> String {
    let first = all[..all.len().min(FEW)].join(", ");
    match all.len().saturating_sub(FEW) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// The names of ended processes are empty.
pub fn processes(pids: &[u32]) -> impl Iterator<Item = tiptoe_session::Process> {
    let name = |pid: u32| Process::new(pid).and_then(Process::comm);
    pids.iter()
        .map(move |pid| (*pid, name(*pid).unwrap_or_default()).into())
}

pub(crate) fn session_target(target: &Attached) -> tiptoe_session::Process {
    target.counted().into()
}

pub fn few_processes(pids: &[u32]) -> String {
    let words = processes(pids).map(|process| format!("{} {}", process.pid, process.comm));
    let all: Vec<String> = words.map(|words| words.trim_end().to_owned()).collect();
    few(&all)
}

pub fn dropped<const N: usize>(reasons: [(u64, impl ToString); N]) -> Vec<Dropped> {
    let some = reasons.into_iter().filter(|(count, _)| *count > 0);
    some.map(|(count, reason)| Dropped {
        reason: reason.to_string(),
        count,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_of_many_are_named() {
        let names = |count: u32| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(few(&names(2)), "1, 2");
        assert_eq!(few(&names(8)), "1, 2, 3, 4, 5, 6, 7, 8");
        assert_eq!(few(&names(11)), "1, 2, 3, 4, 5, 6, 7, 8 and 3 more");
        let me = Process::current();
        let expected = format!("{} {}", me.pid(), me.comm().unwrap());
        assert_eq!(few_processes(&[me.pid()]), expected);
    }
}
