//! A thread that waits in a futex call, as /proc/PID/task/TID/syscall reports it.

use tiptoe_futex::operation::Kind as Does;
use tiptoe_sys::host::procfs::Process;
use tiptoe_wire::futex::OPERATION_SHIFT;

use crate::error::Error;

const FUTEX: u64 = 202;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FutexSleeper {
    pub(super) address: u64,
    pub(super) operation: u32,
    pub(super) sp: u64,
    pub(super) pc: u64,
}

impl FutexSleeper {
    /// `None` if the thread waits in no futex call, or has ended.
    pub(super) fn read(process: Process, tid: u32) -> Result<Option<FutexSleeper>, Error> {
        let pid = process.pid();
        match std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
            Ok(text) => Ok(FutexSleeper::parse(&text)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(Error::UnreadableWaits { pid, error })
            }
            Err(_) => Ok(None),
        }
    }

    pub(super) fn operation_bits(&self) -> u64 {
        u64::from(self.operation & 0x7f) << OPERATION_SHIFT
    }

    /// Parses the file: the call's number, six arguments, the stack pointer, and the program counter.
    fn parse(text: &str) -> Option<FutexSleeper> {
        let mut words = text.split_whitespace();
        let number: u64 = words.next()?.parse().ok()?;
        let rest: Vec<u64> = words
            .filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
            .collect();
        let [address, operation, _, _, _, _, sp, pc] = rest[..] else {
            return None;
        };
        let operation = operation as u32;
        let waits = number == FUTEX && Does::of(operation) == Does::Wait;
        waits.then_some(FutexSleeper {
            address,
            operation,
            sp,
            pc,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_in_a_futex_call_is_parsed() {
        let text = "202 0x5580 0x80 0x2 0x0 0x0 0x0 0x7ffd10 0x7f0012\n";
        let asleep = FutexSleeper::parse(text).expect("it waits");
        let found = (asleep.address, asleep.operation, asleep.sp, asleep.pc);
        assert_eq!(found, (0x5580, 0x80, 0x7ffd10, 0x7f0012));
        for other in [
            "running",
            "-1 0x7ffd 0x7f",
            "0 0x1 0x2 0x3 0x0 0x0 0x0 0x7 0x8",
        ] {
            assert!(FutexSleeper::parse(other).is_none(), "{other}");
        }
        assert!(
            FutexSleeper::parse(&text.replace("0x80", "0x81")).is_none(),
            "a wake"
        );
    }
}
