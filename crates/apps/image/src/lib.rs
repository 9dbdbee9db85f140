//! The agent (tiptoe's library in a traced program) as bytes, so that `tiptoe` is a single file.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The file `libtiptoe_agent.so`.
pub const AGENT: &[u8] = include_bytes!(env!("TIPTOE_AGENT_SO"));
