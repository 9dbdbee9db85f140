//! `tiptoe-dev bench coverage`: the part of a binary's functions that can be patched with a jump, not only with a trap.
//! The functions are those of symbol tables and .eh_frame.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tiptoe_event::Via;
use tiptoe_session::{EventNote, Session};
use tiptoe_sys::host::procfs::{Mapping, Process};

use crate::driver::trace_once;
use crate::error::Error;
use crate::options::Options;
use crate::private::PrivateFolder;
use crate::table::{Table, TableRow};
use crate::workshop::failed;

/// A program that prints `ready`, and waits until its stdin is closed.
struct Holder {
    program: &'static str,
    arguments: &'static [&'static str],
    /// The text for stdin that makes the program print `ready`.
    question: &'static str,
    /// For each row of the table, its name, and the binary's name as tiptoe's command line has it.
    binaries: &'static [(&'static str, &'static str)],
}

const LIBRARIES: &str =
    "import ctypes, sys, _hashlib; ctypes.CDLL('libstdc++.so.6'); ctypes.CDLL('libcrypto.so.3')
print('ready', flush=True); sys.stdin.read()";
const HEAP: &str =
    "import sys; heap = [bytes(1000) for _ in range(2_000_000)]; print('ready', flush=True)
sys.stdin.read()";

const HOLDERS: [Holder; 4] = [
    Holder {
        program: "/usr/bin/python3",
        arguments: &["-S", "-c", LIBRARIES],
        question: "",
        binaries: &[
            ("libc", "libc.so.6"),
            ("libstdc++", "libstdc++.so.6"),
            ("libcrypto", "libcrypto.so.3"),
            ("python3", "python3*"),
        ],
    },
    Holder {
        program: "/usr/bin/python3",
        arguments: &["-S", "-c", HEAP],
        question: "",
        binaries: &[("python3, 2 GB heap", "python3*")],
    },
    Holder {
        program: "/usr/bin/sqlite3",
        arguments: &["-batch", ":memory:"],
        question: ".print ready\n",
        binaries: &[("sqlite3", "sqlite3"), ("libsqlite3", "libsqlite3.so.0")],
    },
    Holder {
        program: "/usr/bin/redis-server",
        arguments: &["--port", "0", "--unixsocket", "socket", "--save", ""],
        question: "",
        binaries: &[("redis-server", "redis-server")],
    },
];

/// A word that Redis prints when it is ready.
const READY: &str = "ready";

pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "coverage".into(),
        rows: Vec::new(),
        ..Table::default()
    };
    let folder = PrivateFolder::new("coverage").map_err(failed("making a folder"))?;
    for holder in &HOLDERS {
        let Ok(mut child) = holder.start(folder.path()) else {
            table
                .notes
                .push(format!("skipped: {} (not installed)", holder.program));
            continue;
        };
        for (case, binary) in holder.binaries {
            let session = trace_once(
                child.id(),
                &format!("{binary}:*"),
                Via::Agent,
                options.agent,
            );
            add(&mut table, case, &session?)?;
        }
        table.notes.extend(crowded(holder, child.id()));
        // Closing stdin is not enough, because Redis does not read it.
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok(table)
}

impl Holder {
    fn start(&self, folder: &Path) -> std::io::Result<Child> {
        let mut child = Command::new(self.program)
            .args(self.arguments)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(stdin) = &mut child.stdin {
            stdin.write_all(self.question.as_bytes())?;
        }
        let lines = child
            .stdout
            .take()
            .into_iter()
            .flat_map(|stdout| BufReader::new(stdout).lines());
        let mut lines = lines.map_while(Result::ok);
        let is_ready = lines.any(|line| line.contains(READY));
        if is_ready {
            Ok(child)
        } else {
            Err(std::io::ErrorKind::UnexpectedEof.into())
        }
    }
}

/// The least distance of a forward jump that is one byte longer than the replaced instruction. The top byte of its
/// distance becomes the next instruction's first byte, and must trap there. The lowest byte that traps is 0x06.
const FORWARD: u64 = 96 << 20;

/// Returns a note if a heap of more than 1 GB begins less than [`FORWARD`] after the program, at a random distance. For
/// such jumps, the memory before the heap is too near, and the memory after it too far.
fn crowded(holder: &Holder, pid: u32) -> Option<String> {
    let maps = Process::new(pid).ok()?.maps().ok()?;
    let is_heap = |map: &Mapping| map.path.as_deref() == Some(Path::new("[heap]"));
    let heap = maps.iter().position(is_heap)?;
    let in_front = maps.get(heap.checked_sub(1)?)?;
    let (room, long) = (
        maps[heap].start - in_front.end,
        maps[heap].end - maps[heap].start,
    );
    (room < FORWARD && long > 1 << 30).then(|| {
        let (case, room) = (holder.binaries[0].0, room >> 20);
        format!("{case}: the heap begins only {room} MB after the program in this run, and leaves less room \
                 for jumps")
    })
}

fn add(table: &mut Table, case: &str, session: &Session) -> Result<(), Error> {
    let by_trap = session
        .events
        .iter()
        .filter(|event| event.notes.contains(&EventNote::Trap.into()));
    let traps = by_trap.count();
    let jumps = session.events.len() - traps;
    let all = session.events.len() + session.refusals.len();
    if all == 0 {
        return Err(Error::Answer(format!("no function of {case} was found")));
    }
    table.rows.push(TableRow {
        case: case.to_owned(),
        sites: Some(all),
        value: 100.0 * jumps as f64 / all as f64,
        unit: "%".into(),
        ..TableRow::default()
    });
    let mut reasons = std::collections::BTreeMap::from([("no jump fits there: a trap", traps)]);
    for refusal in &session.refusals {
        *reasons.entry(refusal.reason.as_str()).or_default() += 1;
    }
    let reasons = reasons.iter().filter(|(_, count)| **count > 0);
    table
        .notes
        .extend(reasons.map(|(reason, count)| format!("{case}: {count} of {all}: {reason}")));
    Ok(())
}
