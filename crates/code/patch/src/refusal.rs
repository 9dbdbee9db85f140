//! Why a site is left alone.

/// Why a function cannot be patched at the asked place, in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The offset lies outside the function.
    #[error("offset {offset:#x} is outside the function, which has {size:#x} bytes")]
    Outside {
        /// The offset asked for.
        offset: usize,
        /// The size of the function.
        size: usize,
    },
    /// The offset is not where an instruction begins.
    #[error("offset {offset:#x} is not the beginning of an instruction")]
    InsideInstruction {
        /// The offset asked for.
        offset: usize,
    },
    /// The bytes at the site are no instruction.
    #[error("the bytes at {address:#x} are not an instruction")]
    Undecodable {
        /// Where they are.
        address: u64,
    },
    /// Unwinders know the signal return code by its bytes.
    #[error("it is the signal return code, which unwinders recognise by its bytes")]
    SignalReturn,
    /// A system call has to run at its own address.
    #[error("the system call at {address:#x} must run at its own address")]
    SystemCall {
        /// Where it is.
        address: u64,
    },
    /// No copy elsewhere would do what the instruction does here.
    #[error("the {what} at {address:#x} cannot run from another address")]
    Unrelocatable {
        /// Where it is.
        address: u64,
        /// What it is.
        what: &'static str,
    },
    /// Another patch already covers or displaces these bytes.
    #[error("another patch, at {other:#x}, already covers these bytes")]
    Overlaps {
        /// The first byte that the other patch owns.
        other: u64,
    },
    /// No free memory for a trampoline within reach.
    #[error("no free memory for a trampoline within 2 GiB of it")]
    NoRoom,
    /// The counter's index is more than an instruction can hold.
    #[error("counter {slot} is out of range")]
    Slot {
        /// The index asked for.
        slot: u32,
    },
    /// Calls cannot be followed from here.
    #[error("nothing tells there where the function returns to")]
    NotEntry,
    /// A system call hook was asked for a site that `syscall_sites` did not give.
    #[error("there is no system call here to hook")]
    NotSyscall,
}
