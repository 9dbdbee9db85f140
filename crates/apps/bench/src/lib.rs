//! To be written.
#![warn(missing_docs)]

mod assembly;
mod error;
mod table;
mod target;

pub use error::Error;
pub use table::{Row, Table};
