//! End to end: real programs, driven through the command. Exact counts are asked for with `--budget off`.

mod attach;
mod bad_input;
mod bad_targets;
mod counts;
mod daemons;
mod debuggers;
mod doctor;
mod ends;
mod foreign;
mod hooks;
mod injection;
mod limits;
mod manners;
mod musl;
mod names;
mod namespaces;
mod patcher;
mod places;
mod programs;
mod returns;
mod returns_stacks;
mod returns_unwind;
mod seccomp;
mod servers;
mod signals;
mod without_agent;
