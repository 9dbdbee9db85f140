/// Why a place (a site) cannot be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The offset is too great.
    #[error("offset {offset:#x} is outside the function, which has {size:#x} bytes")]
    Outside {
        /// The offset.
        offset: usize,
        /// The function's size.
        size: usize,
    },
    /// No instruction begins at the offset.
    #[error("offset {offset:#x} is not the beginning of an instruction")]
    InsideInstruction {
        /// The offset.
        offset: usize,
    },
    /// The bytes are no valid instruction.
    #[error("the bytes at {address:#x} are not an instruction")]
    Undecodable {
        /// Its address.
        address: u64,
    },
    /// The code to which signal handlers return.
    #[error("it is the signal return code, which unwinders recognise by its bytes")]
    SignalReturn,
    /// The system call must run at its own address.
    #[error("the system call at {address:#x} must run at its own address")]
    SystemCall {
        /// Its address.
        address: u64,
    },
    /// The instruction cannot be copied.
    #[error("the {what} at {address:#x} cannot run from another address")]
    Unrelocatable {
        /// Its address.
        address: u64,
        /// The kind of instruction.
        what: &'static str,
    },
    /// Another patch covers the bytes.
    #[error("another patch, at {other:#x}, already covers these bytes")]
    Overlaps {
        /// The other patch's first byte.
        other: u64,
    },
    /// No free memory in reach.
    #[error("no free memory for a trampoline within 2 GiB of the function")]
    NoRoom,
    /// The counter's index is too great.
    #[error("counter {slot} is out of range")]
    Slot {
        /// The index.
        slot: u32,
    },
    /// The site is not a function's entry.
    #[error("the return address is at no known place there")]
    NotEntry,
    /// [`crate::syscall_sites`] did not return the site.
    #[error("there is no system call here to hook")]
    NotSyscall,
}
