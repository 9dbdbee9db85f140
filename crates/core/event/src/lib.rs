//! The event model: what is observed, where, and with what result. All types are plain values, without allocation or
//! system calls.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cost;
pub mod counter;
mod duration;
pub mod ends;
mod event;
pub mod filter;
mod filter_text;
pub mod histogram;
pub mod latency;
pub mod memory;
mod number;
mod printable;
pub mod reading;
pub mod records;
pub mod spec;
mod spec_parse;
pub mod store;
mod text;
pub mod via;

pub use cost::{Basis, Cost, Share};
pub use counter::{Counter, CounterError, CounterGroup, CounterKind, counter_groups};
pub use duration::{duration_ns, time};
pub use ends::Ends;
pub use event::{Event, EventError, UserLocks, WaitSelection};
pub use filter::{Comparison, Filter, Join, Operator, Width};
pub use filter_text::{FilterError, FilterFault};
pub use histogram::{HISTOGRAM_BUCKETS, HISTOGRAM_SCALE, Histogram, THRESHOLDS, bucket_of};
pub use latency::Latency;
pub use memory::{Access, LENGTHS, Memory, MemoryError, MemoryFault};
pub use number::number;
pub use printable::{Printable, PrintableJson, ShellWord, is_unseen};
pub use reading::Reading;
pub use records::Records;
pub use spec::{Function, Kind, OtherKind, ProbeSpec, Spec, is_glob};
pub use spec_parse::{SpecError, SpecFault, kind_prefix, single_colon};
pub use store::Store;
pub use text::{TextError, TextPart};
pub use via::{UnknownWord, Via};
