//! All lines on stderr except failures, reports, their notes and the status line.

use std::fmt;

pub enum Notice<'a> {
    Counting(String),
    NotBegun,
    Toggled(u64),
    NothingToFix,
    Running(&'a str),
    Fixed,
    LookAtFiles,
    CommandNeeded,
    Panicked { place: String, why: &'a str },
    Fault,
}

impl fmt::Display for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counting(names) => return write!(f, "counting: {names}"),
            Self::NotBegun => {
                "note: a signal ended tiptoe before it was attached: nothing was counted"
            }
            Self::Toggled(times) => return write!(f, "toggled {times} times"),
            Self::NothingToFix => "note: nothing is missing that `--fix` can enable",
            Self::Running(line) => return write!(f, "running: {line}"),
            Self::Fixed => "note: `tiptoe doctor` shows what works now",
            Self::LookAtFiles => "note: look at these files before you send them",
            Self::CommandNeeded => "note: a report also needs the command, and what it printed",
            Self::Panicked { place, why } => return write!(f, "error: tiptoe failed{place}: {why}"),
            Self::Fault => {
                "hint: this is a fault in tiptoe; please report it with the line above and what `tiptoe bug` writes"
            }
        })
    }
}
