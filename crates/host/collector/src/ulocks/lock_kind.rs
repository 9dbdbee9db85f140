//! The kind of an awaited lock, by the libc function that the user called and the futex operation.

use tiptoe_futex::rwlock;
use tiptoe_port::mode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockKind {
    pub name: &'static str,
    /// Such as "read" or "write"; `None` for a lock with one mode.
    pub mode: Option<&'static str>,
    /// Whether threads wait for an event, not for a lock's holder.
    pub is_idle: bool,
    /// Whether a library reports the lock. The reported address is the lock's own, not that of a word in the lock.
    pub is_reported: bool,
}

const fn lock(name: &'static str) -> LockKind {
    LockKind {
        name,
        mode: None,
        is_idle: false,
        is_reported: false,
    }
}

const fn idle(name: &'static str) -> LockKind {
    LockKind {
        is_idle: true,
        ..lock(name)
    }
}

const fn rwlock(mode: &'static str) -> LockKind {
    LockKind {
        mode: Some(mode),
        ..lock("rwlock")
    }
}

impl LockKind {
    /// `itself` is whether the system call was made in `function`, not in a callee.
    pub fn of(function: &str, operation: u32, itself: bool) -> LockKind {
        let bare = function.trim_start_matches('_');
        let has = |word: &str| bare.contains(word);
        match bare {
            _ if has("rwlock") && (has("rdlock")) => rwlock("read"),
            _ if has("rwlock") => rwlock("write"),
            _ if has("cond_") || has("cnd_") => match operation & 0x7f {
                // At the end of a wait, a condition variable's mutex is locked again.
                0 | 6 | 13 if !itself => lock("mutex"),
                _ if has("wait") => idle("condition"),
                // A signal or broadcast waits until earlier waiters have continued.
                _ => lock("condition"),
            },
            _ if has("mutex") || has("mtx_") => lock("mutex"),
            _ if has("sem_") => idle("semaphore"),
            _ if has("barrier") => idle("barrier"),
            _ if has("once") => lock("once"),
            _ if has("join") || has("thrd_") => idle("join"),
            "" => lock("futex"),
            _ if bare.starts_with("runtime.lock") => lock("Go's own"),
            _ if bare.starts_with("runtime.") => LockKind::PARKED,
            // The lock may be of any kind: musl makes all futex calls in these functions, and in glibc their caller is
            // unknown.
            _ if CALLS.iter().any(|call| bare.starts_with(call)) => lock("futex"),
            _ => lock(LIBCS_OWN),
        }
    }

    pub const fn reported(mode: u64) -> LockKind {
        let kind = match mode {
            mode::MUTEX => lock("mutex"),
            mode::WRITE => rwlock("write"),
            mode::READ => rwlock("read"),
            mode::UPGRADABLE => rwlock("upgradable"),
            mode::UPGRADE => rwlock("upgrade"),
            _ => lock("lock"),
        };
        LockKind {
            is_reported: true,
            ..kind
        }
    }

    /// A thread of Go's runtime without a goroutine to run.
    pub const PARKED: LockKind = idle("parked M");

    /// Returns the kind if the waiting function turns out not to be libc's.
    pub fn of_the_users(self) -> LockKind {
        match self.name {
            LIBCS_OWN => lock("futex"),
            _ => self,
        }
    }
}

const LIBCS_OWN: &str = "libc's own";
/// Prefixes of libc's functions that make futex calls for any kind of lock.
const CALLS: [&str; 6] = [
    "syscall",
    "lll_lock_wait",
    "futex",
    "timedwait",
    "wait",
    "wake",
];

impl LockKind {
    /// Returns the address of the lock, which may have several awaited words.
    pub fn object(&self, waited_at: u64) -> u64 {
        match self.name {
            "rwlock" if !self.is_reported => rwlock::start_of(waited_at),
            // A condition variable has two groups of waiters, each with a word.
            "condition" => waited_at & !7,
            _ => waited_at,
        }
    }

    /// Returns the lock's offset in a variable in which a thread waits at `offset`.
    pub fn within(&self, offset: u64) -> u64 {
        match (self.name, offset) {
            // Where the words of the two groups are depends on glibc's version.
            ("condition", 0..48) => 0,
            _ => offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_determines_the_kind() {
        let check = |function: &str, operation: u32, want: (&str, Option<&str>, bool)| {
            let kind = LockKind::of(function, operation, false);
            assert_eq!((kind.name, kind.mode, kind.is_idle), want, "{function}");
        };
        check("__pthread_mutex_lock", 0, ("mutex", None, false));
        check(
            "pthread_rwlock_timedrdlock",
            9,
            ("rwlock", Some("read"), false),
        );
        check(
            "__pthread_rwlock_wrlock",
            9,
            ("rwlock", Some("write"), false),
        );
        check("pthread_cond_wait", 9, ("condition", None, true));
        check("pthread_cond_wait", 0, ("mutex", None, false));
        check("sem_wait", 9, ("semaphore", None, true));
        check("malloc", 0, ("libc's own", None, false));
        check("syscall", 0, ("futex", None, false));
        let itself = |function| LockKind::of(function, 0, true);
        assert_eq!(itself("pthread_cond_wait"), idle("condition"));
        assert_eq!(itself("pthread_cond_signal"), lock("condition"));
    }

    #[test]
    fn one_object_is_waited_for_at_several_words() {
        let rwlock = LockKind::of("pthread_rwlock_rdlock", 0, false);
        assert_eq!([0x1008, 0x100c].map(|at| rwlock.object(at)), [0x1000; 2]);
        let condition = LockKind::of("pthread_cond_wait", 9, false);
        assert_eq!([0x1028, 0x102c].map(|at| condition.object(at)), [0x1028; 2]);
        assert_eq!(
            [0, 40, 48].map(|offset| condition.within(offset)),
            [0, 0, 48]
        );
    }
}
