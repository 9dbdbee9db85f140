//! Errors of bringing the agent in and of talking to it.

use std::ffi::OsString;
use std::io;

use tiptoe_wire::Request;

/// Why the agent does not serve. The target is unchanged, or its agent restores it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The target ended, or called exec.
    #[error("the target ended, or ran another program, while it was being traced")]
    TargetEnded,
    /// The agent does not answer.
    #[error("the agent did not answer request {request:?}")]
    Silent {
        /// The unanswered request.
        request: Request,
    },
    /// The agent could not serve a request.
    #[error("the agent could not serve request {request:?}: {why}")]
    Refused {
        /// The request.
        request: Request,
        /// The system's error.
        why: io::Error,
    },
    /// The agent could not write a trampoline.
    #[error("the agent could not write a trampoline")]
    Unwritten,
    /// A command's program does not exist.
    #[error("cannot run `{}`: no such program", .word.display())]
    NoProgram {
        /// The command's first word.
        word: OsString,
    },
    /// A command cannot be started, or ended before exec.
    #[error("cannot run `{word}`: {why}")]
    CannotRun {
        /// The command's first word.
        word: String,
        /// The system's error.
        why: io::Error,
    },
    /// A command that was held at exec cannot continue.
    #[error("cannot continue process {pid}: {why}")]
    CannotContinue {
        /// The command's process.
        pid: u32,
        /// The system's error.
        why: io::Error,
    },
    /// The given id is a thread's, not a process's.
    #[error("{pid} is a thread of process {leader}")]
    IsThread {
        /// The id.
        pid: u32,
        /// The thread's process.
        leader: u32,
    },
    /// The process cannot be read.
    #[error(transparent)]
    Unreadable(#[from] tiptoe_sys::host::Error),
    /// Memory to share with the target cannot be made.
    #[error("cannot make shared memory for the counts: {0}")]
    SharedMemory(io::Error),
    /// The agent's file lacks a symbol that tiptoe needs.
    #[error("the agent of this tiptoe is incomplete: {what}")]
    IncompleteAgent {
        /// The missing symbol, or why the file cannot be parsed.
        what: String,
    },
    /// The program changed the agent's table of sites.
    #[error(
        "it has the agent of an earlier session, whose table of sites was changed; restart the program to remove the agent"
    )]
    ForgedSites,
}

impl AttachError {
    /// Returns what the user can do about the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            AttachError::Silent { .. } => {
                Some("is the target stopped (SIGSTOP, a debugger)?".into())
            }
            AttachError::NoProgram { .. } => Some("give its path, or check PATH".into()),
            AttachError::IsThread { leader, .. } => Some(format!("-p {leader}")),
            AttachError::Unreadable(error) => error.hint(),
            _ => None,
        }
    }
}
