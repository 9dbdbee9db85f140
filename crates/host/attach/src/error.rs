//! The errors of this crate, with all its messages.
#![expect(missing_docs, reason = "the message of a variant says what it means")]

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;

use tiptoe_wire::Request;

pub(crate) mod inject_error;

/// Why an attach, a start or a request to the agent (tiptoe's library) failed. The target is unchanged, or its agent
/// restores it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    #[error("the target ended, or ran another program, while it was being traced")]
    TargetEnded,
    #[error("the agent did not answer request {request:?}")]
    Silent { request: Request },
    #[error("the agent could not serve request {request:?}: {why}")]
    Refused { request: Request, why: io::Error },
    #[error("the agent could not write a trampoline")]
    Unwritten,
    #[error("cannot run `{}`: no such program", .word.display())]
    NoProgram { word: OsString },
    #[error("cannot run `{word}`: {why}")]
    CannotRun { word: String, why: io::Error },
    #[error("`{word}` ended ({status}) and never ran `{name}`: it ran {ran}")]
    NeverRan {
        word: String,
        name: String,
        status: ExitStatus,
        /// The names of programs that ran.
        ran: String,
    },
    #[error("it could not be started again with the agent: {0}")]
    NoSecondExec(io::Error),
    #[error("{pid} is a thread of process {leader}")]
    IsThread { pid: u32, leader: u32 },
    #[error(transparent)]
    Unreadable(#[from] tiptoe_sys::host::Error),
    #[error("cannot make shared memory for the counts: {0}")]
    SharedMemory(io::Error),
    #[error("the agent of this tiptoe is incomplete: {what}")]
    IncompleteAgent { what: String },
    #[error(
        "it has the agent of an earlier session, whose table of sites was changed; restart the program to remove the agent"
    )]
    ForgedSites,
}

impl AttachError {
    /// Returns what the user can do.
    pub fn hint(&self) -> Option<String> {
        match self {
            AttachError::Silent { .. } => {
                Some("is the target stopped (SIGSTOP, a debugger)?".into())
            }
            AttachError::NoProgram { .. } => Some("give its path, or check PATH".into()),
            AttachError::IsThread { leader, .. } => Some(format!("-p {leader}")),
            AttachError::NeverRan { .. } => {
                Some("`--exec` takes the file name or path of a program, not of a script".into())
            }
            AttachError::Unreadable(error) => error.hint(),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum IoReason {
    #[error("it ended before it called exec: {0}")]
    EndedBeforeExec(ExitStatus),
    #[error("the kernel gives it more rights than its launcher has")]
    GainsRights,
    #[error("it cannot open its own descriptors in /proc")]
    NoProc,
    #[error("too many arguments, or too much environment")]
    ManyArguments,
    #[error("the kernel does not run it as a script")]
    UnknownFormat,
    #[error("the starter died")]
    StarterDied,
    #[error("no owner thread")]
    NoOwnerThread,
    #[error("the data segment is too small")]
    SmallSegment,
    #[error("the target changed its length")]
    LengthChanged,
}

impl From<IoReason> for io::Error {
    fn from(reason: IoReason) -> io::Error {
        io::Error::other(reason)
    }
}

/// Why a program has more rights than the user who starts it.
pub(crate) mod gain {
    pub(crate) const USER: &str = "it is setuid and runs with another user's rights";
    pub(crate) const GROUP: &str = "it is setgid and runs with another group's rights";
    pub(crate) const CAPABILITIES: &str = "its file gives it capabilities";
}
