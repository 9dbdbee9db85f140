//! Variables: from what a user names to an address in a process.
//!
//! Three steps, so that each is done where its input is: a [`Watch`] is text that was read;
//! [`Variables::plan`] turns it, with one file's symbols and DWARF, into a [`Plan`], which says
//! from which address to start, which pointers to follow and what type is there; and
//! [`Plan::locate`] takes these steps in the memory of one process, which the caller reads.
//!
//! A variable is looked for by reading all entries of debug information once, those of
//! functions' bodies included, because statics are there too. Nothing is kept from one
//! question to the next but what is known of each unit. Structures that a source file only
//! declares are looked for in the same way.
//!
//! Cost (a busy two-core virtual machine): a variable in 51 MB of debug information (a Rust
//! program) 0.4 s, in libc's (a debug file of its own, 50 ms to unpack) 45 ms, each also of a
//! name that is not there, twice. Measured by `TIPTOE_TIME_FILE=FILE TIPTOE_TIME_VARIABLE=NAME
//! cargo test -p tiptoe-symbol --release --test variable_files -- --ignored --nocapture time`.

mod error;
mod expression;
mod file;
mod location;
mod members;
mod names;
mod origin;
mod parser;
mod plan;
mod resolve;
mod scan;
mod sections;
mod symbols;
mod threads;
mod types;
mod units;
mod value;
mod watch;

use crate::content::Content;
use crate::debug::DebugSource;
use crate::image::Image;
pub(crate) use file::MAX_UNITS;
pub(crate) use sections::Files;
use sections::Sections;
use units::Units;

pub use error::VariableError;
pub use expression::{Expression, Name, Operator, Root};
pub use plan::{Place, Plan, Read, Start, Step, check_alignment};
pub use resolve::Variables;
pub use threads::Thread;
pub(crate) use threads::ThreadSegment;
pub use value::{Kind, Type};
pub use watch::{Access, LENGTHS, Watch, WatchError, WatchFault};

impl Image {
    /// Asks for variables of this image, whose `bytes` are the same that it was read from.
    /// What is unpacked and found out on the way is kept for all that `ask` asks.
    pub fn variables<R>(
        &self,
        bytes: &Content,
        source: &dyn DebugSource,
        ask: impl FnOnce(&Variables<'_>) -> R,
    ) -> R {
        let files = Files::find(bytes, source);
        let own = Sections::read(files.described(bytes));
        let shared = files.shared().map(Sections::read);
        ask(&Variables {
            image: self,
            units: Units::new(&own, shared.as_ref()),
            is_cut: files.are_cut(bytes),
            missing: files.missing.clone(),
        })
    }
}
