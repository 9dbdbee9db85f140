//! Reports on stderr, and to a program that waits (`--ready-fd`), that counting has begun.

use std::fs::File;
use std::io::Write;

use tiptoe_collector::{Ready, RequestTarget};
use tiptoe_sys::host::inherited_descriptors;

use crate::failure::Failure;
use crate::notice::Notice;
use crate::output::{NotesTo, Output};
use crate::{status, target_names, terminal};

#[derive(Clone, Copy, Debug)]
pub enum ReadyLine {
    Plain,
    /// The line is a comment, because a script may read fields from stderr.
    Comment,
    /// No line, because stderr must be valid JSON or belongs to the command.
    Silent,
}

impl ReadyLine {
    pub fn for_output(output: &Output, target: &RequestTarget, is_json: bool) -> ReadyLine {
        match output {
            Output::Stderr if is_json => ReadyLine::Silent,
            _ if output.notes_to(target) == NotesTo::Report => ReadyLine::Silent,
            _ => ReadyLine::Plain,
        }
    }
}

/// Returns what the driver (which runs the trace) calls when counting has begun. Takes ownership of the descriptor
/// `fd`. Fails if `fd` was not inherited for writing.
pub fn ready(fd: Option<i32>, ready_line: ReadyLine) -> Result<Ready, Failure> {
    let taken = fd.map(|fd| {
        inherited_descriptors::take_writable(fd).map_err(|error| Failure::BadReadyFd { fd, error })
    });
    let waits = taken.transpose()?.map(File::from);
    Ok(Ready::new(move |counted| {
        status::counting();
        let line = Notice::Counting(target_names::of_processes(counted));
        match ready_line {
            ReadyLine::Plain => terminal::say(line),
            ReadyLine::Comment => terminal::say(format!("# {line}")),
            ReadyLine::Silent => {}
        }
        if let Some(mut waits) = waits {
            // Fails only if the waiting program has closed the pipe.
            let _ = waits.write_all(b"ready\n");
        }
    }))
}
