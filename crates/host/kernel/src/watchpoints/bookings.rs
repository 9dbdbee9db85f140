//! Records the debug registers that this user's tiptoe processes hold, so that a refusal can name the holder.
//!
//! Each tiptoe that watches has a file in a folder that only this user may enter.
//!
//! 1. A tiptoe writes its file, then reads the others, so that of two tiptoes at least one sees the other.
//! 2. A file counts while its writer lives: a process with the file's id and start time, in the same PID namespace.
//!    Afterwards the next tiptoe removes the file.
//! 3. Only the kernel knows other programs' registers, so the kernel may refuse registers that these files allow.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use tiptoe_breakpoint::{
    Accounting, Error as AccountingError, Geometry, Holder, Kind, Registers, Request, Target,
};
use tiptoe_sys::host::Process;
use tiptoe_sys::host::own_folder::{OwnFolder, runtime_folder};

use super::futex::{Futex, REGISTERS};
use crate::Error;

const MOST_BYTES: usize = 4096;
const MOST_NAME: usize = 200;
const MOST_OTHERS: usize = 64;

/// This tiptoe's file, which is removed when this is dropped.
#[derive(Debug)]
pub struct Booking {
    folder: OwnFolder,
    name: String,
}

impl Drop for Booking {
    fn drop(&mut self) {
        // If this fails, the next tiptoe removes the file.
        let _ = self.folder.remove(&self.name);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    pid: u32,
    watched: Option<u32>,
    names: Vec<String>,
}

/// Records registers of all CPUs, or of a process's threads, as taken. If this user's other tiptoes hold too many,
/// the error names them. Returns `None` if the file cannot be written.
pub(super) fn book(watched: Option<u32>, names: Vec<String>) -> Result<Option<Booking>, Error> {
    // The folder must not outlive a reboot, because start times count from boot.
    let folder = runtime_folder().and_then(|path| OwnFolder::make(&path).ok());
    match folder {
        Some(folder) => book_in(folder, watched, names),
        None => Ok(None),
    }
}

fn book_in(
    folder: OwnFolder,
    watched: Option<u32>,
    names: Vec<String>,
) -> Result<Option<Booking>, Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let own = Process::current();
    let entry = Entry {
        pid: own.pid(),
        watched,
        names,
    };
    // Relaxed: the numbers must only differ.
    let number = NUMBER.fetch_add(1, Relaxed);
    let (Ok(started), Some(mine)) = (own.thread_start_time(own.pid()), prefix()) else {
        return Ok(None);
    };
    let name = format!("{mine}{}.{number}", own.pid());
    let text = entry.encode(started.as_nanos());
    if folder.write(&name, text.as_bytes()).is_err() {
        return Ok(None);
    }
    let booking = Booking { folder, name };
    let others = booking.others(&mine, own.pid());
    check(&entry, &others).map_err(Error::HeldByOthers)?;
    Ok(Some(booking))
}

fn prefix() -> Option<String> {
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let text = namespace.to_str()?;
    let number = text.strip_prefix("pid:[")?.strip_suffix(']')?;
    Some(format!("watch.{number}."))
}

impl Booking {
    fn others(&self, mine: &str, own: u32) -> Vec<Entry> {
        let names = self.folder.names().unwrap_or_default().into_iter();
        let names = names.filter_map(|name| {
            let pid: u32 = name.strip_prefix(mine)?.split('.').next()?.parse().ok()?;
            (pid != own).then_some((pid, name))
        });
        let entry = |(pid, name): (u32, String)| {
            let text = self.folder.read(&name, MOST_BYTES).ok()?;
            let (started, entry) = Entry::decode(pid, &text)?;
            let lives = Process::new(pid)
                .and_then(|process| process.thread_start_time(pid))
                .is_ok_and(|start| start.as_nanos() == started);
            if !lives {
                let _ = self.folder.remove(&name); // another tiptoe may have removed it
            }
            lives.then_some(entry)
        };
        names.filter_map(entry).take(MOST_OTHERS).collect()
    }
}

impl Entry {
    fn target(&self) -> Target {
        match self.watched {
            // All threads hold the same registers, so one represents them.
            Some(pid) => Target::Task {
                task: pid.into(),
                cpu: None,
            },
            // Events are on all CPUs alike, so one represents them.
            None => Target::Cpu(0),
        }
    }

    fn encode(&self, started: u128) -> String {
        let mut text = format!("{started}\n{}\n", self.watched.unwrap_or(0));
        for name in &self.names {
            let plain = name.chars().filter(|c| !c.is_control()).take(MOST_NAME);
            text.extend(plain.chain(['\n']));
        }
        text
    }

    fn decode(pid: u32, text: &[u8]) -> Option<(u128, Entry)> {
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        let started = lines.next()?.parse().ok()?;
        let watched: u32 = lines.next()?.parse().ok()?;
        let names = lines.take(REGISTERS as usize).map(str::to_owned);
        let entry = Entry {
            pid,
            watched: (watched != 0).then_some(watched),
            names: names.collect(),
        };
        Some((started, entry))
    }
}

fn check(own: &Entry, others: &[Entry]) -> Result<(), String> {
    let reservations = (others.len() as u32 + 1) * REGISTERS;
    let geometry = Geometry::new(1, Registers::Mixed(REGISTERS), 2 * reservations);
    let words = geometry.map_or(0, |geometry| geometry.words());
    let words: Vec<AtomicU64> = std::iter::repeat_with(AtomicU64::default)
        .take(words)
        .collect();
    let accounting = geometry.and_then(|geometry| Accounting::new(geometry, &words, &Futex));
    let Some(accounting) = accounting else {
        return Ok(()); // impossible: the numbers are sane
    };
    let entries = || others.iter().chain([own]);
    let holders = entries().flat_map(|entry| entry.names.iter().map(move |name| (entry, name)));
    let holders: Vec<(&Entry, &String)> = holders.collect();
    for (id, (entry, _)) in (0..).zip(&holders) {
        let reserved = accounting.reserve(&Request::new(entry.target(), Kind::Data, id));
        // Only a refusal of the own entry counts, because the kernel already granted the others' registers.
        if let Err(AccountingError::NoSlot(conflict)) = reserved
            && std::ptr::eq(*entry, own)
        {
            let name =
                |holder: &Holder, f: &mut fmt::Formatter| match holders.get(holder.id as usize) {
                    Some((entry, name)) if std::ptr::eq(*entry, own) => {
                        write!(f, "'{name}' of this watch")
                    }
                    Some((entry, name)) => write!(f, "'{name}' of tiptoe (pid {})", entry.pid),
                    None => f.write_str("another watch"),
                };
            return Err(conflict.describe(name).to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32, watched: Option<u32>, names: &[&str]) -> Entry {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Entry {
            pid,
            watched,
            names,
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        for watched in [None, Some(42)] {
            let one = entry(7, watched, &["prog:stats.hits", "a b"]);
            let text = one.encode(1_000);
            assert_eq!(Entry::decode(7, text.as_bytes()), Some((1_000, one)));
        }
        let broken = entry(7, None, &["two\nlines"]).encode(1);
        let (_, read) = Entry::decode(7, broken.as_bytes()).expect("an entry");
        assert_eq!(read.names, ["twolines"]);
        for text in ["", "x\n0\n", "1\n-1\n", "1"] {
            assert_eq!(Entry::decode(7, text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn other_watches_in_the_way_are_named_with_their_processes() {
        let others = [
            entry(7, None, &["a", "b"]),
            entry(8, Some(42), &["c"]),
            entry(9, Some(43), &["d", "e"]),
        ];
        let check = |watched, names: &[&str]| check(&entry(1, watched, names), &others);
        assert_eq!(check(Some(42), &["x"]), Ok(()));
        assert_eq!(check(Some(44), &["x", "y"]), Ok(()));
        assert_eq!(
            check(Some(42), &["x", "y"]),
            Err(
                "no debug register left on cpu 0 for thread 42: held by 'c' of tiptoe (pid 8), 'x' of this watch, \
                 'a' of tiptoe (pid 7), 'b' of tiptoe (pid 7)"
                    .to_owned()
            )
        );
        // A CPU's request must fit beside the process with most registers.
        assert_eq!(
            check(None, &["x"]),
            Err(
                "no debug register left on cpu 0: held by 'd' of tiptoe (pid 9) of thread 43, 'e' of tiptoe (pid 9) of \
                 thread 43, 'a' of tiptoe (pid 7), 'b' of tiptoe (pid 7)"
                    .to_owned()
            )
        );
    }

    #[test]
    fn an_entry_ends_with_its_process() {
        let path = std::env::temp_dir().join(format!("tiptoe-bookings-{}", std::process::id()));
        let folder = || OwnFolder::make(&path).expect("a folder of our own");
        let names = || vec!["x".to_owned()];
        let parent = std::os::unix::process::parent_id();
        let started = Process::new(parent).and_then(|process| process.thread_start_time(parent));
        let started = started.expect("it waits for us").as_nanos();
        let four = entry(parent, None, &["a", "b", "c", "d"]);
        let write = |started| {
            let name = format!("{}{parent}.0", prefix().expect("procfs"));
            folder()
                .write(&name, four.encode(started).as_bytes())
                .expect("room");
        };
        write(started);
        let refused = book_in(folder(), None, names()).expect_err("it has all");
        assert!(
            refused
                .to_string()
                .contains(&format!("'a' of tiptoe (pid {parent})")),
            "{refused}"
        );
        assert_eq!(
            folder().names().expect("ours").len(),
            1,
            "a refused watch has no entry"
        );
        write(started + 1);
        let booking = book_in(folder(), None, names()).expect("nothing is held");
        assert_eq!(
            folder().names().expect("ours").len(),
            1,
            "the old entry was removed"
        );
        drop(booking);
        assert_eq!(folder().names().expect("ours").len(), 0);
        std::fs::remove_dir(&path).expect("empty");
    }
}
