//! Reasons why a site cannot be patched.

/// Why a function cannot be patched at an offset, in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The offset is outside the function.
    #[error("offset {offset:#x} is outside the function, which has {size:#x} bytes")]
    Outside {
        /// The requested offset.
        offset: usize,
        /// The size of the function.
        size: usize,
    },
    /// No instruction begins at the offset.
    #[error("offset {offset:#x} is not the beginning of an instruction")]
    InsideInstruction {
        /// The requested offset.
        offset: usize,
    },
    /// The bytes at the site are not an instruction.
    #[error("the bytes at {address:#x} are not an instruction")]
    Undecodable {
        /// The address of these bytes.
        address: u64,
    },
    /// The signal return code, which unwinders recognise by its bytes.
    #[error("it is the signal return code, which unwinders recognise by its bytes")]
    SignalReturn,
    /// The system call must run at its own address.
    #[error("the system call at {address:#x} must run at its own address")]
    SystemCall {
        /// The address of the call.
        address: u64,
    },
    /// A copy elsewhere would not do what the instruction does.
    #[error("the {what} at {address:#x} cannot run from another address")]
    Unrelocatable {
        /// The address of the instruction.
        address: u64,
        /// The kind of instruction.
        what: &'static str,
    },
    /// Another patch already covers or displaces these bytes.
    #[error("another patch, at {other:#x}, already covers these bytes")]
    Overlaps {
        /// The first byte of the other patch.
        other: u64,
    },
    /// No free memory for a trampoline in reach.
    #[error("no free memory for a trampoline within 2 GiB of the function")]
    NoRoom,
    /// The counter's index exceeds an instruction's.
    #[error("counter {slot} is out of range")]
    Slot {
        /// The requested index.
        slot: u32,
    },
    /// Not a function's entry, so the return address is at no known place.
    #[error("the return address is at no known place there")]
    NotEntry,
    /// A hook was requested for a site that `syscall_sites` did not return.
    #[error("there is no system call here to hook")]
    NotSyscall,
}
