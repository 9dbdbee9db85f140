//! What kind of lock a wait is for: by the function of libc that the user called, and the
//! operation that the kernel was asked for.

use tiptoe_wire::futex::OPERATION_SHIFT;

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// "read" or "write".
    pub mode: Option<&'static str>,
    /// Whether a thread waits there for something to happen.
    pub idle: bool,
}

const fn lock(name: &'static str) -> Kind {
    Kind {
        name,
        mode: None,
        idle: false,
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
    /// By the name of the function in libc, and where it called with the operation above.
    pub fn of(function: &str, via: u64) -> Kind {
        let operation = via >> OPERATION_SHIFT & 0x7f;
        let bare = function.trim_start_matches('_');
        let has = |word: &str| bare.contains(word);
        match bare {
            _ if has("rwlock") && (has("rdlock")) => rwlock("read"),
            _ if has("rwlock") => rwlock("write"),
            _ if has("cond_") || has("cnd_") => match operation {
                // It takes its mutex again.
                0 | 6 | 13 => lock("mutex"),
                _ => idle("condition"),
            },
            _ if has("mutex") || has("mtx_") => lock("mutex"),
            _ if has("sem_") => idle("semaphore"),
            _ if has("barrier") => idle("barrier"),
            _ if has("once") => lock("once"),
            _ if has("join") || has("thrd_") => idle("join"),
            "syscall" => lock("futex"),
            "" => lock("futex"),
            _ => lock("libc's own"),
        }
    }
}

impl Kind {
    /// Where a lock begins, as threads wait at words inside of it: those of glibc's own. `offset`
    /// is how far its variable begins before.
    pub fn beginning(&self, offset: u64) -> u64 {
        match (self.name, offset % 8) {
            // The word of writers is the fourth, that of the phase the third.
            ("rwlock", 4) => offset.saturating_sub(12),
            ("rwlock", _) => offset.saturating_sub(8),
            // It has two groups of waiters; where they are depends on the version.
            ("condition", _) if (32..48).contains(&offset) => 0,
            _ => offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_tells_the_kind() {
        let check = |function: &str, operation: u64, want: (&str, Option<&str>, bool)| {
            let kind = Kind::of(function, operation << OPERATION_SHIFT);
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
    }
}
