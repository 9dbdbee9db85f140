//! Finds the command for an event that was given to the wrong command.

use tiptoe_event::{Event, OtherKind, kind_prefix};

use crate::failure::Failure;

/// Fails if `text` names an event of another command than `command`.
pub fn refuse(text: &str, command: &'static str) -> Result<(), Failure> {
    match command_of(text) {
        Some(other) if other != command => Err(Failure::OfOtherCommand {
            text: text.to_owned(),
            command,
            other,
        }),
        _ => Ok(()),
    }
}

fn command_of(text: &str) -> Option<&'static str> {
    match Event::parse(text) {
        Ok(Event::Probe(_)) => Some("probe"),
        Ok(Event::Memory(_)) => Some("watch"),
        Ok(Event::UserLocks(_) | Event::KernelLocks(_)) => Some("lock"),
        // `scope:*` may also mean all functions of a binary named `scope`.
        Ok(Event::Scopes | Event::Counters(_)) => None,
        Err(_) => match OtherKind::of_word(kind_prefix(text)?.trim_end_matches(':'))? {
            OtherKind::Mem => Some("watch"),
            OtherKind::Ulock | OtherKind::Klock => Some("lock"),
            OtherKind::Usdt => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_event_has_its_command() {
        for (text, command) in [
            ("uprobe:f", Some("probe")),
            ("uretprobe:f", Some("probe")),
            ("mem:stats.hits", Some("watch")),
            ("mem:a:3", Some("watch")),
            ("ulock:cache_lock/hold/", Some("lock")),
            ("klock:mmap_lock/every/", Some("lock")),
            ("klock:rwsem", Some("lock")),
            ("scope:*", None),
            ("mem::grab", None),
            ("klock::x", None),
            ("cycles", None),
            ("kmem:kmalloc", None),
            ("redis-server:call", None),
            ("prog:", None),
            ("usdt:a:b", None),
        ] {
            assert_eq!(command_of(text), command, "{text}");
            assert!(refuse(text, command.unwrap_or("probe")).is_ok(), "{text}");
        }
        assert!(refuse("mem:stats.hits", "probe").is_err());
    }
}
