//! Keeps a started command from running its own code.
//!
//! | hold | what holds it | what has run |
//! |---|---|---|
//! | [`Hold::BeforeExec`] | a pipe that tiptoe's forked child reads | nothing |
//! | [`Hold::AtExec`] | ptrace | nothing of the program, which is mapped; possibly its launcher |
//! | [`Hold::InAgent`] | the constructor of the agent (tiptoe's library) | the loader |
//! | [`Hold::Nothing`] | | possibly everything |

use std::process::Child;

use crate::launch::Tracer;
use crate::preload::StartedCommand;

pub(crate) enum Hold {
    BeforeExec(StartedCommand),
    AtExec(Child, Tracer),
    InAgent(Child),
    Nothing(Child),
}

impl Hold {
    pub(crate) fn child(&mut self) -> Option<&mut Child> {
        match self {
            Hold::BeforeExec(_) => None,
            Hold::AtExec(child, _) | Hold::InAgent(child) | Hold::Nothing(child) => Some(child),
        }
    }

    /// Returns whether the command itself has this id, not a process that it started.
    pub(crate) fn is_of(&self, pid: u32) -> bool {
        match self {
            Hold::BeforeExec(started) => started.pid == pid,
            Hold::AtExec(child, _) | Hold::InAgent(child) | Hold::Nothing(child) => {
                child.id() == pid
            }
        }
    }

    pub(crate) fn nothing(self) -> Hold {
        match self {
            Hold::AtExec(child, _) | Hold::InAgent(child) => Hold::Nothing(child),
            other => other,
        }
    }
}
