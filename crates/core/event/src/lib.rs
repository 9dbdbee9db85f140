//! The event model: what is observed, where, and what came of it.
//!
//! Pure values, no allocation, no operating system: every other room speaks in
//! these words, so the model is free of everything that could fail.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod filter;

pub use filter::{Comparison, Filter, Join, Operator, Width};
