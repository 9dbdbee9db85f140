//! Finds the address of a variable in a process from its name.
//!
//! Three steps, so that each is done where its input is available. A [`Watch`] is parsed text.
//! [`Variables::plan`] makes a [`Plan`] from it with one file's symbols and DWARF: the start
//! address, the pointers to follow, and the type. Then [`Plan::locate`] follows the plan in the
//! memory of one process, which the caller reads.
//!
//! A lookup reads all entries of debug information once, including those of functions' bodies,
//! because these contain statics. Between lookups only data about each unit is kept. Structures
//! that a source file only declares are found the same way.
//!
//! Cost (a busy two-core virtual machine): a variable in 51 MB of debug information (a Rust
//! program) 0.4 s, in libc's (a separate debug file that takes 50 ms to unpack) 45 ms. A missing
//! name costs twice that.

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
mod variable_error;
mod watch;

use crate::content::Content;
use crate::debug::DebugSource;
use crate::image::Image;
pub(crate) use file::MAX_UNITS;
pub(crate) use sections::Files;
use sections::Sections;
use units::Units;

pub use expression::{Expression, Name, Operator, Root};
pub use plan::{LoadedFile, Plan, Read, Start, Step, check_alignment};
pub use resolve::Variables;
pub use threads::Thread;
pub(crate) use threads::ThreadSegment;
pub use value::{Kind, Type};
pub use variable_error::VariableError;
pub use watch::{Access, LENGTHS, Watch, WatchError, WatchFault};

impl Image {
    /// Passes the variables of this image to `ask`; `bytes` must be those from which the image was
    /// read. Unpacked and decoded data is kept for all lookups of `ask`.
    pub fn variables<R>(
        &self,
        bytes: &Content,
        source: &dyn DebugSource,
        ask: impl FnOnce(&Variables<'_>) -> R,
    ) -> R {
        let files = Files::find_or_fetch(bytes, source);
        let own = Sections::read(files.described(bytes));
        let shared = files.shared().map(Sections::read);
        ask(&Variables {
            image: self,
            units: Units::new(&own, shared.as_ref()),
            is_cut: files.are_cut(bytes),
            missing: files.missing.clone(),
            path: source.image_path(),
        })
    }
}
