//! All messages of failures. Other modules only make variants.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use tiptoe_dev::Error;
use tiptoe_event::{CounterError, Printable};
use tiptoe_schedule::AddError;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Bench(#[from] Error),
    #[error("signals cannot be handled: {0}")]
    NoSignals(io::Error),
    #[error("standard output cannot be written: {0}")]
    NotPrinted(io::Error),
    #[error("the {0} no JSON form: {1}")]
    NoJson(&'static str, serde_json::Error),

    #[error("{0}")]
    BadCounter(String),
    #[error("{0:.0} switches are too many to simulate")]
    ManySwitches(f64),
    #[error("this can never count: {0}")]
    NeverCounts(AddError),
    #[error("--for-each-cgroup {list}: {fault}")]
    BadCgroups { list: String, fault: CgroupsFault },
    #[error("{} cannot be read: {error}", path.display())]
    UnreadableTrace { path: PathBuf, error: io::Error },
    #[error("{}:{line}: {fault}", path.display())]
    BadTrace {
        path: PathBuf,
        line: usize,
        fault: TraceFault,
    },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CgroupsFault {
    #[error("1 to {0} cgroups can be simulated")]
    BadNumber(usize),
    #[error("a name is missing")]
    NoName,
    #[error("not the names of cgroups")]
    BadName,
    #[error("the root is the whole system")]
    Root,
    #[error("'{0}' is given twice")]
    Twice(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceFault {
    #[error("not three words")]
    Words,
    #[error("not a time in seconds")]
    Time,
    #[error("not the number of a CPU")]
    Cpu,
    #[error("not the name of a cgroup")]
    Cgroup,
    #[error("earlier than the first line")]
    BeforeFirst,
    #[error("earlier than the previous line of this CPU")]
    BeforePrevious,
    #[error("there is no time between two switches")]
    NoTime,
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not a time (write 2, 1.5s, 500ms or 3m)")]
pub struct NotTime;

impl Failure {
    /// Prints the failure. It is escaped, because it may quote a file. Returns the exit status of bad options.
    pub fn report(&self) -> ExitCode {
        eprintln!("error: {}", Printable(&self.to_string()));
        if let Some(hint) = self.hint() {
            eprintln!("hint: {}", Printable(&hint));
        }
        ExitCode::from(2)
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Bench(Error::Trace(error)) => return error.hint(),
            Self::Bench(Error::Threads { cpus, .. }) => {
                return Some(format!("`-t {cpus}` gives each thread its own CPU"));
            }
            Self::Bench(Error::OneCpu) => "`--line-ns 60` takes that of another machine",
            Self::Bench(Error::Unknown(_)) => "`tiptoe-dev bench` lists all benches",
            Self::ManySwitches(_) => "less --time, or fewer --cpus: all CPUs are alike",
            Self::NeverCounts(_) => "smaller {groups}, or more --slots",
            Self::BadCgroups { fault, .. } => match fault {
                CgroupsFault::Root => "-a counts for the whole system",
                _ => "names such as web,db,batch/nightly, or a number",
            },
            Self::UnreadableTrace { .. } => "a trace has lines `SECONDS CPU CGROUP`",
            Self::BadTrace { .. } => {
                "a line has the time from which a CPU runs a cgroup: 12.000345 3 web/worker"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

impl From<CounterError<'_>> for Failure {
    fn from(error: CounterError<'_>) -> Failure {
        Failure::BadCounter(error.to_string())
    }
}
