//! The addresses of the agent (tiptoe's library) are random, and after a detach only what `SECURITY.md` lists
//! remains.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use tiptoe_tests::{Probe, Process, is_root, root, sampled, skipped, target, target_with};

const FUNCTIONS: &[&str] = &["add", "down", "digits", "scale", "fill", "choose"];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mapping {
    start: u64,
    len: u64,
    permissions: String,
    path: String,
}

impl Mapping {
    fn all(pid: u32) -> Vec<Mapping> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
        let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
        let mapping = |line: &str| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            Some(Mapping {
                start: number(start),
                len: number(end) - number(start),
                permissions: words.next()?.to_owned(),
                path: words.skip(3).collect::<Vec<_>>().join(" "),
            })
        };
        maps.lines().filter_map(mapping).collect()
    }

    fn is_anonymous(&self, permissions: &str, len: u64) -> bool {
        self.path.is_empty() && self.permissions == permissions && self.len == len
    }

    fn is_arenas(&self) -> bool {
        self.len.is_multiple_of(ARENA)
            && self.permissions == "r-xs"
            && self.path.starts_with("/memfd:tiptoe-plan")
    }

    /// Memory that need not be near code is in this range.
    fn is_far(&self) -> bool {
        (0x5500_0000_0000..0x5555_5555_4000).contains(&self.start)
    }
}

const ARENA: u64 = 0x1_0000;
const STACK: u64 = 0x1_0000;

/// Regression: the agent's memory had the same addresses in every process, so an attacker could take over the agent's
/// thread by two writes.
#[test]
fn nothing_of_the_agents_is_at_the_same_address_in_two_processes() {
    let program = target("hot");
    let fixed = target_with("hot", &["-no-pie"]).expect("it builds");
    for (program, is_fixed) in [(program, false), (fixed, true)] {
        let found: Vec<Vec<Mapping>> = (0..8).map(|_| mapped_while_traced(&program)).collect();
        let of = |which: &dyn Fn(&Mapping) -> bool| -> Vec<BTreeSet<u64>> {
            let starts =
                |maps: &Vec<Mapping>| maps.iter().filter(|m| which(m)).map(|m| m.start).collect();
            found.iter().map(starts).collect()
        };
        // The agent has at least its stack, state, two pieces of shared memory, list of mappings, and one page.
        let far = of(&Mapping::is_far);
        assert!(far.iter().all(|starts| starts.len() >= 6), "{found:#x?}");
        let stacks = of(&|m| m.is_far() && m.is_anonymous("rw-p", STACK));
        assert!(stacks.iter().all(|starts| starts.len() == 1));
        let images = of(&|m| m.path.starts_with("/memfd:tiptoe-agent"));
        let homes = of(&|m| m.is_anonymous("r-xp", 4096));
        for (what, starts) in [("far", far), ("image", images), ("home", homes)] {
            let all: BTreeSet<u64> = starts.iter().flatten().copied().collect();
            let count: usize = starts.iter().map(BTreeSet::len).sum();
            assert!(count >= 8 && all.len() == count, "{what}: {starts:x?}");
        }
        let arenas = of(&Mapping::is_arenas);
        assert!(arenas.iter().all(|starts| !starts.is_empty()));
        let different: BTreeSet<&BTreeSet<u64>> = arenas.iter().collect();
        // Only 63 addresses are available below a program that is not position-independent.
        let least = if is_fixed { 2 } else { 8 };
        assert!(different.len() >= least, "{arenas:x?}");
        println!("{} different arenas of 8: {arenas:x?}", different.len());
        let distances = found.iter().map(|maps| {
            let code = maps.iter().find(|m| m.path.ends_with("/libc.so.6"))?.start;
            let arena = maps.iter().rfind(|m| m.is_arenas() && m.start < code)?;
            Some(code - arena.start)
        });
        let distances: BTreeSet<Option<u64>> = distances.collect();
        assert!(
            distances.len() >= 4 && !distances.contains(&None),
            "{distances:x?}"
        );
    }
}

fn mapped_while_traced(program: &Path) -> Vec<Mapping> {
    let mut waiting = Process::waiting(program, &["2", "1000"]);
    let attached = Probe::new(FUNCTIONS).attach(&[waiting.pid()]);
    attached.wait_ready();
    let mapped = Mapping::all(waiting.pid());
    attached.interrupt();
    waiting.go();
    assert!(waiting.finish().1.success());
    mapped
}

#[test]
fn only_what_security_md_lists_remains_in_a_program() {
    let docs = std::fs::read_to_string(root().join("SECURITY.md")).expect("it is there");
    let documented = |len: u64| {
        let said = format!("{} KiB", len / 1024);
        assert!(docs.contains(&said), "SECURITY.md does not say {said}");
    };
    let mut waiting = Process::waiting(&target("hot"), &["2", "1000"]);
    let pid = waiting.pid();
    let before = Mapping::all(pid);
    let attached = Probe::new(FUNCTIONS).attach(&[pid]);
    attached.wait_ready();
    let while_traced = Mapping::all(pid);
    let data = while_traced.iter().find(|m| m.path.contains("tiptoe-data"));
    let data = data.expect("a data segment").clone();
    attached.interrupt();
    let mut left = Mapping::all(pid);
    // The program's heap and mapped files may have grown.
    left.retain(|m| {
        !before
            .iter()
            .any(|b| b.path == m.path && !m.path.is_empty())
    });
    left.retain(|m| !before.contains(m));
    let mut shared = left.iter().filter(|m| m.permissions.ends_with('s'));
    assert!(shared.all(Mapping::is_arenas), "{left:#x?}");
    assert_eq!(
        std::fs::read_dir(format!("/proc/{pid}/task"))
            .expect("it lives")
            .count(),
        1
    );
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
    assert!(descriptors.flatten().all(|fd| {
        !std::fs::read_link(fd.path())
            .is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:tiptoe"))
    }));

    let mut taken = |what: &str, which: &dyn Fn(&Mapping) -> bool| -> Vec<u64> {
        let (found, others): (Vec<Mapping>, Vec<Mapping>) =
            left.iter().cloned().partition(|m| which(m));
        left = others;
        assert!(!found.is_empty(), "{what}");
        found.iter().map(|m| m.len).collect()
    };
    let image = taken("image", &|m| m.path.starts_with("/memfd:tiptoe-agent"));
    assert_eq!(image.len(), 3, "more would slow forks down");
    assert_eq!(taken("stub", &|m| m.is_anonymous("r-xp", 4096)).len(), 1);
    taken("arenas", &Mapping::is_arenas);
    documented(ARENA);
    let place = taken("a segment's place", &|m| m.start == data.start);
    assert_eq!(place, [data.len]);
    let far = taken("state", &|m| {
        m.is_far() && m.path.is_empty() && m.permissions == "rw-p"
    });
    documented(far.iter().sum());
    assert!(
        !far.contains(&STACK),
        "the stack of a thread that has ended"
    );
    let pages = taken("the stub's second page", &|m| {
        m.path.is_empty() && m.permissions == "rw-p"
    });
    assert_eq!(pages, [4096]);
    assert!(left.is_empty(), "{left:#x?}");
    waiting.go();
    assert!(waiting.finish().1.success());
}

/// Regression: a process may trace a thread with equal ids. So such a process could read and write the memory of
/// root's program through the agent's thread.
#[test]
fn no_process_has_the_ids_of_the_agents_thread() {
    if !is_root() {
        return skipped("ids", "needs root");
    }
    let mut seen = BTreeSet::new();
    for _ in sampled(&[0; 4]) {
        let mut waiting = Process::waiting(&target("hot"), &["2", "1000"]);
        let attached = Probe::new(&["libc.so.6:getenv"]).attach(&[waiting.pid()]);
        attached.wait_ready();
        let tasks = std::fs::read_dir(format!("/proc/{}/task", waiting.pid())).expect("it lives");
        let statuses = tasks.flatten().map(|task| {
            let status = std::fs::read_to_string(task.path().join("status"));
            (task.path(), status.expect("it lives"))
        });
        let agent = |(_, status): &(_, String)| status.contains("tiptoe-agent");
        let (folder, status) = statuses
            .into_iter()
            .find(agent)
            .expect("the agent's thread");
        let ids = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let words = line.expect("a line").split_whitespace();
            words.map(|word| word.parse().expect("an id")).collect()
        };
        let (user, group) = (ids("Uid:"), ids("Gid:"));
        for id in [user[0], user[2], group[0], group[2]] {
            for file in ["environ", "mem"] {
                let mut read = Command::new("dd");
                let path = folder.join(file);
                read.arg(format!("if={}", path.display()))
                    .args(["count=0", "status=none"]);
                let run = read.uid(id).gid(group[0]).output().expect("dd runs");
                assert!(!run.status.success(), "{} as {id}", path.display());
            }
        }
        assert!(seen.insert(user), "the same ids again");
        attached.interrupt();
        waiting.go();
        assert!(waiting.finish().1.success());
    }
}
