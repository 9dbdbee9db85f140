//! Decides which system calls of a thread tiptoe may interrupt, and how an interrupted call is made again.
//!
//! The kernel itself restarts most interrupted calls (by codes that only a tracer sees). A few calls return a raw
//! EINTR. Such a call has done nothing, so tiptoe can repeat the call, but its time-out begins anew. Calls that may
//! return a part of their work must not be interrupted, because the program would see a short result.

use libc::user_regs_struct;

use super::stub::Registers;

const ERESTARTSYS: i64 = 512;
const ERESTARTNOINTR: i64 = 513;
const ERESTARTNOHAND: i64 = 514;
const ERESTART_RESTARTBLOCK: i64 = 516;
/// io_pgetevents, which the libc crate lacks.
const SYS_IO_PGETEVENTS: i64 = 333;

/// What a pending signal's handler does to the interrupted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Restart {
    /// Nothing: there was no call, or the kernel always restarts the call.
    Always = 0,
    /// The call ends with EINTR, unless the handler was installed with SA_RESTART.
    UnlessHandled = 1,
    NeverHandled = 2,
}

/// How much a program notices if this thread is borrowed (made to run tiptoe's code), the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// The thread sleeps in a call whose restart the program does not notice.
    Asleep,
    /// The thread runs, or its call cannot be read.
    Running,
    /// The call's time-out would begin anew.
    Timed,
    /// The call could return a part of its work, or must not be interrupted.
    Never,
}

pub(super) fn rank(line: &str) -> Rank {
    let Some(number) = number(line) else {
        return Rank::Running;
    };
    let mut args = [0u64; 6];
    for (arg, word) in args.iter_mut().zip(line.split_ascii_whitespace().skip(1)) {
        *arg = u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
    }
    match number {
        libc::SYS_read | libc::SYS_readv => Rank::Asleep,
        _ if is_partial(number) => Rank::Never,
        _ if is_raw_eintr(number) && has_time_out(number, args[2], args[3]) => Rank::Timed,
        _ => Rank::Asleep,
    }
}

fn number(line: &str) -> Option<i64> {
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns whether the call may return early with a part of its work, or creates or ends a process.
fn is_partial(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwrite64
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_sendfile
            | libc::SYS_splice
            | libc::SYS_tee
            | libc::SYS_vmsplice
            | libc::SYS_copy_file_range
            | libc::SYS_getrandom
            | libc::SYS_close
            | libc::SYS_vfork
            | libc::SYS_fork
            | libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_execve
            | libc::SYS_execveat
            | libc::SYS_exit
            | libc::SYS_exit_group
    )
}

/// Returns whether a stop would cut short the call in which a thread sleeps.
pub(super) fn is_transfer(line: &str) -> bool {
    let births = [
        libc::SYS_vfork,
        libc::SYS_fork,
        libc::SYS_clone,
        libc::SYS_clone3,
    ];
    number(line).is_some_and(|number| is_partial(number) && !births.contains(&number))
}

/// Returns whether EINTR means that this call has done nothing.
fn is_raw_eintr(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2
            | libc::SYS_semop
            | libc::SYS_semtimedop
            | libc::SYS_rt_sigtimedwait
            | libc::SYS_io_getevents
            | SYS_IO_PGETEVENTS
            | libc::SYS_io_uring_enter
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_connect
            | libc::SYS_sendto
            | libc::SYS_sendmsg
    )
}

pub(super) fn is_after_raw_eintr(regs: &user_regs_struct) -> bool {
    regs.rax as i64 == -i64::from(libc::EINTR) && is_raw_eintr(regs.orig_rax as i64)
}

pub(super) fn is_interrupted(regs: &user_regs_struct) -> bool {
    let restarts =
        [ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND].contains(&(regs.rax as i64).wrapping_neg());
    regs.orig_rax as i64 >= 0 && (restarts || is_after_raw_eintr(regs))
}

pub(super) fn is_timed(regs: &user_regs_struct) -> bool {
    has_time_out(regs.orig_rax as i64, regs.rdx, regs.r10)
}

fn has_time_out(number: i64, third: u64, fourth: u64) -> bool {
    match number {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => fourth as i32 >= 0,
        libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => fourth != 0,
        libc::SYS_rt_sigtimedwait => third != 0,
        libc::SYS_semop => false,
        _ => true,
    }
}

/// Makes the kernel restart the interrupted call, unless a handler runs.
pub(super) fn heal_raw_eintr(regs: &mut user_regs_struct) {
    regs.rax = -ERESTARTNOHAND as u64;
}

pub(super) fn resume(regs: &user_regs_struct) -> (Registers, Restart) {
    let mut to = Registers {
        rax: regs.rax,
        rbx: regs.rbx,
        rcx: regs.rcx,
        rdx: regs.rdx,
        rsi: regs.rsi,
        rdi: regs.rdi,
        rbp: regs.rbp,
        rsp: regs.rsp,
        r8: regs.r8,
        r9: regs.r9,
        r10: regs.r10,
        r11: regs.r11,
        r12: regs.r12,
        r13: regs.r13,
        r14: regs.r14,
        r15: regs.r15,
        flags: regs.eflags,
        rip: regs.rip,
    };
    if (regs.orig_rax as i64) < 0 {
        return (to, Restart::Always);
    }
    let (number, restart) = match (regs.rax as i64).wrapping_neg() {
        ERESTARTSYS => (regs.orig_rax, Restart::UnlessHandled),
        ERESTARTNOINTR => (regs.orig_rax, Restart::Always),
        ERESTARTNOHAND => (regs.orig_rax, Restart::NeverHandled),
        ERESTART_RESTARTBLOCK => (libc::SYS_restart_syscall as u64, Restart::NeverHandled),
        _ if is_after_raw_eintr(regs) => (regs.orig_rax, Restart::NeverHandled),
        _ => return (to, Restart::Always),
    };
    to.rax = number;
    to.rip -= 2;
    (to, restart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_ranked_by_their_call() {
        let cases = [
            ("running", Rank::Running),
            (
                "35 0x7ffd 0x7ffe 0x0 0x0 0x0 0x0 0x7ff0 0x7f01",
                Rank::Asleep,
            ),
            (
                "232 0x5 0x7f 0x80 0xffffffff 0x0 0x0 0x7f 0x7f",
                Rank::Asleep,
            ),
            ("232 0x5 0x7f 0x80 0x64 0x0 0x0 0x7f 0x7f", Rank::Timed),
            ("128 0x5 0x7f 0x0 0x8 0x0 0x0 0x7f 0x7f", Rank::Asleep),
            ("45 0x5 0x7f 0x0 0x8 0x0 0x0 0x7f 0x7f", Rank::Timed),
            ("1 0x5 0x7f 0x0 0x8 0x0 0x0 0x7f 0x7f", Rank::Never),
        ];
        for (line, expected) in cases {
            assert_eq!(rank(line), expected, "{line}");
        }
    }
}
