//! The options of `probe`, and its help.

use clap::{Args, ValueEnum};
use tiptoe_event::Filter;

use crate::common::Common;
use crate::values;

/// The examples, also at the beginning of [`PROBE_HELP`].
macro_rules! probe_examples {
    () => {
        "\
Examples:
  tiptoe probe 'redis-server:*' -p 42        which functions are called most
  tiptoe probe malloc --by thread -- CMD     by each thread of a command
  tiptoe probe --latency dictFind -p 42      how long calls take"
    };
}
pub const PROBE_EXAMPLES: &str = probe_examples!();

pub const PROBE_HELP: &str = concat!(
    probe_examples!(),
    "
  tiptoe probe read --filter 'arg2 > 4096' -p 42
                                             only calls with such arguments
  tiptoe probe --record dictFind -p 42       each call, as it happens
  tiptoe probe malloc --under handle -p 42   only below calls of `handle`

Events: [uprobe:|uretprobe:][BINARY:]FUNCTION[+OFFSET]
  dictFind                   a function of the program itself
  'libssl*:SSL_*'            globs, of libraries and of functions: '*' is any
                             text, '?' is one character, every other
                             character is itself
  libstdc++.so.6:std::*      demangled C++ and Rust names, with or without
                             parameters and [abi:…]; a ':' in a name needs no
                             quoting
  redis-server:0x4f2a0       a function without a name
  uretprobe:dictFind         the returns of a function, not its entries
In process, libraries that are loaded later are probed before their code runs. With -- CMD, a \
SPEC may name a library that is not loaded yet. With -p, it must match at once.

Times: with --latency, from entry to return
  --latency                  percentiles, total and self time (the total without
                             callees that are probed too); heat: the times from
                             short to long, a fuller block for more of them
  --latency --histograms     also a histogram of each event's times
  --latency --slower 1ms     only the calls that take longer
  --latency --by thread      also for each thread; --by comm: for each thread
                             name; --by arg0: for each value of the first
                             argument

Records: --record prints a line for each call: seconds since the start, thread, event, and its \
first two integer arguments (small numbers in decimal, others as 0x…): as many as the function \
has, if debug information says so, otherwise the registers rdi and rsi. With --json, each line \
is an object. Calls that are made faster than tiptoe reads them are counted as lost.

Calls are followed and recorded up to --budget; beyond it they are only counted.
`--budget off` follows all of them.

Values: --by arg0 … arg5 counts each value of an integer argument separately, and times it \
with --latency. The value is the one at the call's entry. A thread has room for 256 values of \
an event (64 with --latency); the others are counted as `(other values)`.

Below a function: --under FUNC counts only hits inside a call of FUNC on the same thread, at \
any depth; also in signal handlers, and in coroutines: those that FUNC switches to, and, while \
FUNC's own coroutine is suspended, all code that runs on the thread in the meantime. Calls of \
FUNC that began before the trace are not seen. FUNC itself is always followed, whatever the \
budget (about 8 ns a call), and cannot be counted.

Cost: a hit adds 1 to 6 ns if the code is patched, 1 to 4 us if only a trap fits, and 0.2 to \
20 us if the kernel counts (it may have to single-step). Where only a trap fits, the kernel counts \
if that is cheaper on this machine. A kernel probe that exceeds --budget \
counts only in windows, so its count is a lower bound (>=). Code that is not probed runs \
unchanged. Every report ends with what the tracing cost.

Ctrl-C, SIGTERM and SIGHUP end the trace; the last two are passed on to CMD. If one comes while \
tiptoe attaches to processes, it attaches to no more, and reports those that are attached.

Exit status: with -- CMD, that of CMD (128+N if signal N ended it), else 0; 2 if tiptoe itself \
failed; 128+N if signal N ended tiptoe."
);

/// `tiptoe probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Events to count; quote globs
    #[arg(value_name = "SPEC", required = true)]
    pub specs: Vec<String>,

    /// Print each call: time, thread, two arguments
    #[arg(long, conflicts_with = "latency")]
    pub record: bool,

    /// Count only hits whose arguments match
    ///
    /// Such as 'arg1 > 4096 && arg0:u32 == 3'.
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<Filter>,

    /// Split by thread, comm, arg0 … arg5 or scope
    ///
    /// thread: each thread. comm: all threads of one name together. arg0 to arg5: each value of that argument; arg0 is
    /// the first. scope: each scope that the program enters (tiptoe-scope, tiptoe.h). With --latency each part has its
    /// times.
    #[arg(long, value_name = "WHAT", value_enum, hide_possible_values = true)]
    pub by: Option<ByWord>,

    /// Time calls from entry to return
    ///
    /// The report has percentiles, and a line of blocks whose left end is the shortest times.
    #[arg(long)]
    pub latency: bool,

    /// Draw each event's histogram above the tables
    #[arg(long)]
    pub histograms: bool,

    /// Time only calls that take longer: 1ms, 500us, 2s
    #[arg(long, value_name = "TIME", value_parser = values::slower_ns)]
    pub slower: Option<u64>,

    /// Count only hits inside a call of this function
    ///
    /// On the same thread, at any depth.
    #[arg(long, value_name = "FUNC")]
    pub under: Option<String>,

    /// Use the agent despite seccomp or low ulimits
    ///
    /// By default the kernel counts in such a process.
    #[arg(long)]
    pub force: bool,

    /// Remove the probes and insert them again N times: a test of the patcher
    #[arg(long, value_name = "N", hide = true)]
    pub toggles: Option<u64>,

    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ByWord {
    /// Each thread
    Thread,
    /// All threads of one name together
    Comm,
    /// Each value of the first argument
    Arg0,
    /// Each value of the second argument
    Arg1,
    /// Each value of the third argument
    Arg2,
    /// Each value of the fourth argument
    Arg3,
    /// Each value of the fifth argument
    Arg4,
    /// Each value of the sixth argument
    Arg5,
    /// Each scope that the program enters (tiptoe-scope, tiptoe.h)
    Scope,
}
