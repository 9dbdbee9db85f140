//! What kind of lock a wait is for: by the function of libc that the user called, and the
//! operation that the kernel was asked for.

use tiptoe_futex::rwlock;
use tiptoe_port::mode;

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// "read" or "write".
    pub mode: Option<&'static str>,
    /// Whether a thread waits there for something to happen.
    pub idle: bool,
    /// Whether a library tells of it by itself: the address is the lock's.
    pub told: bool,
}

const fn lock(name: &'static str) -> Kind {
    Kind {
        name,
        mode: None,
        idle: false,
        told: false,
    }
}

const fn idle(name: &'static str) -> Kind {
    Kind {
        idle: true,
        ..lock(name)
    }
}

const fn rwlock(mode: &'static str) -> Kind {
    Kind {
        mode: Some(mode),
        ..lock("rwlock")
    }
}

impl Kind {
    /// By the name of the function in libc, the operation, and whether that function itself
    /// asked the kernel for it, or had another one do so.
    pub fn of(function: &str, operation: u32, itself: bool) -> Kind {
        let bare = function.trim_start_matches('_');
        let has = |word: &str| bare.contains(word);
        match bare {
            _ if has("rwlock") && (has("rdlock")) => rwlock("read"),
            _ if has("rwlock") => rwlock("write"),
            _ if has("cond_") || has("cnd_") => match operation & 0x7f {
                // It takes its mutex again.
                0 | 6 | 13 if !itself => lock("mutex"),
                _ if has("wait") => idle("condition"),
                // For those who wait to have gone on.
                _ => lock("condition"),
            },
            _ if has("mutex") || has("mtx_") => lock("mutex"),
            _ if has("sem_") => idle("semaphore"),
            _ if has("barrier") => idle("barrier"),
            _ if has("once") => lock("once"),
            _ if has("join") || has("thrd_") => idle("join"),
            "" => lock("futex"),
            _ if bare.starts_with("runtime.lock") => lock("Go's own"),
            _ if bare.starts_with("runtime.") => Kind::PARKED,
            // Where musl makes all its calls, and glibc's callers are not known.
            _ if CALLS.iter().any(|call| bare.starts_with(call)) => lock("futex"),
            _ => lock(LIBCS_OWN),
        }
    }

    /// Of a lock that a library tells of, by how it is taken.
    pub const fn told(mode: u64) -> Kind {
        let kind = match mode {
            mode::MUTEX => lock("mutex"),
            mode::WRITE => rwlock("write"),
            mode::READ => rwlock("read"),
            mode::UPGRADABLE => rwlock("upgradable"),
            mode::UPGRADE => rwlock("upgrade"),
            _ => lock("lock"),
        };
        Kind { told: true, ..kind }
    }

    /// A thread of Go's runtime has nothing to run.
    pub const PARKED: Kind = idle("parked M");

    /// The same of a function that is not libc's.
    pub fn of_the_users(self) -> Kind {
        match self.name {
            LIBCS_OWN => lock("futex"),
            _ => self,
        }
    }
}

const LIBCS_OWN: &str = "libc's own";
/// Functions of libc that make futex calls for whatever lock.
const CALLS: [&str; 6] = [
    "syscall",
    "lll_lock_wait",
    "futex",
    "timedwait",
    "wait",
    "wake",
];

impl Kind {
    /// One address for a lock of which threads wait at several words.
    pub fn object(&self, waited_at: u64) -> u64 {
        match self.name {
            "rwlock" if !self.told => rwlock::beginning(waited_at),
            // It has two groups of waiters.
            "condition" => waited_at & !7,
            _ => waited_at,
        }
    }

    /// How far behind its variable's beginning an object is, if `offset` is what is between.
    pub fn within(&self, offset: u64) -> u64 {
        match (self.name, offset) {
            // Where the groups are depends on the version.
            ("condition", 0..48) => 0,
            _ => offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_tells_the_kind() {
        let check = |function: &str, operation: u32, want: (&str, Option<&str>, bool)| {
            let kind = Kind::of(function, operation, false);
            assert_eq!((kind.name, kind.mode, kind.idle), want, "{function}");
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
        let itself = |function| Kind::of(function, 0, true);
        assert_eq!(itself("pthread_cond_wait"), idle("condition"));
        assert_eq!(itself("pthread_cond_signal"), lock("condition"));
    }

    #[test]
    fn one_object_is_waited_for_at_several_words() {
        let rwlock = Kind::of("pthread_rwlock_rdlock", 0, false);
        assert_eq!([0x1008, 0x100c].map(|at| rwlock.object(at)), [0x1000; 2]);
        let condition = Kind::of("pthread_cond_wait", 9, false);
        assert_eq!([0x1028, 0x102c].map(|at| condition.object(at)), [0x1028; 2]);
        assert_eq!(
            [0, 40, 48].map(|offset| condition.within(offset)),
            [0, 0, 48]
        );
    }
}
