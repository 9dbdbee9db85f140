//! Finds the address of a variable in a process from its name.
//!
//! A [`Watch`] is the user's parsed text. With a file's symbols and DWARF, [`Variables::plan`] makes a [`Plan`]:
//! start address, pointers to follow, type. [`Plan::locate`] carries it out in a process's memory, which the caller
//! reads.
//!
//! A lookup reads all entries, also those within functions, because functions contain statics. Only data about units
//! is kept.
//!
//! Cost (a busy two-core virtual machine): a variable in 51 MB of debug information (a Rust program) takes 0.4 s, and
//! in libc's debug information 45 ms (after 50 ms to unpack it). A missing name takes twice as long.

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
mod variables;
mod watch;

use crate::content::Content;
use crate::debug::DebugSource;
use crate::image::Image;
pub(crate) use file::MAX_UNITS;
pub(crate) use sections::Files;
use sections::Sections;
use units::Units;

pub use crate::error::variable_error::{
    AddressForm, BlockGap, Constant, Damage, DebugGap, VariableError,
};
pub use crate::error::watch_error::{WatchError, WatchFault};
pub use expression::{Expression, Name, Operator, Root};
pub use plan::{LoadedFile, Plan, Read, Start, Step, check_alignment};
pub use threads::Thread;
pub use value::{Type, ValueKind};
pub use variables::Variables;
pub use watch::Watch;

impl Image {
    /// Passes the image's variables to `ask`; `bytes` must be the image's content. Decoded data is kept until `ask`
    /// returns.
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
