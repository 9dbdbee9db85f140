//! The reasons: why something is not counted, or is counted by other means.

use std::sync::Arc;

use tiptoe_event::spec::Kind;

use super::Error;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Reason {
    // Other crates' reasons.
    #[error("{0}")]
    Failure(Arc<Error>),
    #[error(transparent)]
    Patch(#[from] tiptoe_patch::Refusal),
    #[error("{0}")]
    Program(&'static str),

    // Positions of probes.
    #[error("no function is known there")]
    NoFunction,
    #[error("no code is known there")]
    NoCode,
    #[error(
        "it is an IFUNC, and the implementation that it chooses is unknown: give the name and offset of the \
         implementation"
    )]
    OffsetOfIfunc,
    #[error("a stub of lazy binding, not a function")]
    LazyStub,
    #[error("signal handlers return through it")]
    SignalReturn,
    #[error(
        "`{0}:` already counts this function, which can have only one event (`uretprobe:` alone also counts the \
         calls: the sum of its ends)"
    )]
    OtherEvent(Kind),
    #[error("`--under {0}` follows it and counts the functions that it calls")]
    IsGate(String),

    // Calls that cannot be followed.
    #[error("{0}: only its entries are counted")]
    EntriesOnly(Box<Reason>),
    #[error("times by value have room for {0} functions")]
    ManyByValue(usize),
    #[error("tiptoe itself hooks it while calls are followed")]
    Intercepted,
    #[error("it returns twice from one call")]
    ReturnsTwice,
    #[error("it has no caller to return to, and may be entered without a call")]
    NoCaller,
    #[error("it uses its return address")]
    UsesReturnAddress,
    #[error("it is entered with more than a return address on the stack")]
    EnteredWithMore,
    #[error("no unwind information says where its return address is")]
    NoUnwindRule,
    #[error("it reads its return address")]
    ReadsReturnAddress,
    #[error("it jumps to a function that reads its return address")]
    JumpsToReader,
    #[error("it calls a function that reads its caller's return address")]
    CallsReader,

    // IFUNCs.
    #[error("its resolver chose code that no known function begins at")]
    UnknownChoice,
    #[error("which implementation it chose is known only to the agent")]
    ChoiceNeedsAgent,
    #[error("which implementation it chose is known only once it is loaded")]
    ChoiceIsLater,

    // The agent's patches.
    #[error("attaching was broken off")]
    BrokenOff,
    #[error("the agent cannot patch the function")]
    AgentCannot,
    #[error("the agent cannot patch it")]
    CannotPatch,
    #[error("there are no counters left for it")]
    NoCounters,
    #[error("no room is left for its trampoline")]
    NoTrampoline,
    #[error("its code in memory differs from its file: another tool patched it")]
    CodeDiffers,
    #[error("its code cannot be written, or is not mapped any more")]
    CodeUnwritable,
    #[error("{0} may block signals by a system call of its own")]
    BlocksSignals(String),
    #[error("it needs a trap byte, and a thread could die of one: {0}")]
    NeedsTrapByte(Box<Reason>),
    #[error(
        "the patch of {0} covers it: probe one of the two in a run, or both with `--via kernel`"
    )]
    Covered(String),

    // The kernel's probes.
    #[error("`--via agent` excludes the kernel")]
    KernelExcluded,
    #[error(
        "the agent's own hook is there, and a probe of the kernel would undo it (`--via kernel` counts it)"
    )]
    Hooked,
    #[error(
        "it is inside a patch in the process's memory, such as another tiptoe's, and a probe of the kernel would \
         break the patch"
    )]
    InsidePatch,
    #[error("the kernel cannot probe {0}")]
    Unprobeable(&'static str),
    #[error("the kernel cannot probe an instruction that is not in its file")]
    NotInFile,
    #[error("{}; {}", .0[0], .0[1])]
    NeitherTakes(Box<[Reason; 2]>),
    #[error("neither the agent nor the kernel can probe its first instruction")]
    FirstInstruction,
    #[error("the kernel's return probes end programs that throw past them")]
    ReturnProbes,
    #[error("no jump fits, and its uprobe costs {uprobe_ns:.0} ns a hit here, a trap {trap_ns:.0}")]
    CostlyTrap { uprobe_ns: f64, trap_ns: f64 },

    // Programs that the agent does not enter.
    #[error("it runs on musl, whose loader takes an agent only when a program starts (`-- CMD`)")]
    Musl,
    #[error("it runs on musl, whose futex calls cannot be patched")]
    MuslFutexes,
    #[error(
        "it has the agent of another build of tiptoe, from an earlier session or from its parent; restart the \
         program to remove the agent"
    )]
    AnotherAgent,
    #[error(
        "it runs under seccomp, which may kill it for a system call of the agent's (`--force` enters anyway)"
    )]
    Seccomp,
    #[error("the kernel refuses the agent a call that the agent needs ({0})")]
    RefusedCall(tiptoe_sys::host::capabilities::Refusal),
    #[error(
        "its address space is limited to {} MiB (RLIMIT_AS), and the agent would use a part of that (`--force` \
         enters anyway)",
        .0 >> 20
    )]
    LimitedMemory(u64),
    #[error(
        "its user may start {0} more threads (RLIMIT_NPROC), and the agent would use one (`--force` enters anyway)"
    )]
    FewThreads(u64),
    #[error("it was started without the agent")]
    StartedWithoutAgent,
    #[error("it ended before the agent was loaded")]
    EndedBefore,
    #[error("its loader did not load the agent")]
    NotPreloaded,

    // Locks.
    #[error(
        "waits that can be cancelled (conditions, semaphores, joins) take a path of their own in this libc"
    )]
    CancellableWaits,
    #[error("its waits are counted, not timed: {0}")]
    WaitsUntimed(tiptoe_patch::Refusal),
    #[error("its calls are not seen: {}; {}", .0[0], .0[1])]
    CallsUnseen(Box<[Reason; 2]>),
    #[error("holds that these calls begin or end are not timed: {0}")]
    HoldsUntimed(Box<Reason>),
    #[error("only a trap fits, and a trap costs more than taking the lock")]
    TrapAtLock,
    #[error("the offset after + must be a number in the form 0x28")]
    BadOffset,
    #[error("there is no variable `{0}`")]
    NoVariable(String),
    #[error("there are several `{name}`: {}", all.join(", "))]
    ManyVariables { name: String, all: Vec<String> },
    #[error("`{0}` would be beyond the last address")]
    BeyondMemory(String),
    #[error("`{name}` would be at {address:#x}, where no memory is writable")]
    NotWritable { name: String, address: u64 },

    // Watched variables.
    #[error("{count} other {} the same addresses", match count {
        1 => "process has",
        _ => "processes have",
    })]
    SharedAddresses { count: usize },
}

impl From<Error> for Reason {
    fn from(error: Error) -> Reason {
        Reason::Failure(Arc::new(error))
    }
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum DropReason {
    #[error("the kernel did not run tiptoe's BPF program, because one already ran on that CPU")]
    Missed,
    #[error("there were more rows than there is room for")]
    ManyRows,

    // Waits for the kernel's locks.
    #[error("ends of waits whose begin was not seen; most began before the trace")]
    NoWaitBegin,
    #[error("begins of waits whose end was not seen")]
    NoWaitEnd,
    #[error("begun or ended while another wait was being counted on the same CPU")]
    NestedWait,
    #[error("ended before they began, by the clock")]
    NegativeWait,
    #[error("too many threads waited at once")]
    ManyWaiters,

    // Futex calls.
    #[error("waits of more threads than there is room for")]
    ManyFutexThreads,
    #[error("waits for more locks, from more places, than there is room for")]
    ManyFutexes,
    #[error("waits whose end was not seen")]
    NoFutexEnd,
    #[error("waits that ended before they began, by the clock")]
    NegativeFutexWait,
    #[error("calls while another call was being counted")]
    NestedCall,
    #[error(
        "calls for which the kernel did not run tiptoe's BPF program, because one already ran on that CPU"
    )]
    MissedCall,
    #[error("calls of futex_waitv, or of the single calls that Linux has since 6.7")]
    OtherFutexCalls,

    // Hits of breakpoints.
    #[error("not counted, because another hit was being counted on the same CPU")]
    NestedHit,
    #[error("not counted, because they came faster than tiptoe read them")]
    FastHit,
    #[error(
        "not counted, because the trap had no cause, as on some virtual machines: the instruction is unknown"
    )]
    StrayTrap,
    #[error(
        "not counted, and perhaps more: a thread blocked SIGTRAP by a system call of its own, so the \
         instructions and the number are unknown"
    )]
    BlockedTrap,
    #[error("counted, but the value could not be read")]
    NoValue,
    #[error("counted, but not printed one by one, because they came faster than tiptoe read them")]
    FastLine,
}
