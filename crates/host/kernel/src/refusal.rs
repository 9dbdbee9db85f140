//! Converts the BPF library's errors.

use std::error::Error as StdError;
use std::io;

use aya::programs::ProgramError;

use crate::Error;

pub(crate) fn bpf_refusal(what: &str, error: &(dyn StdError + 'static)) -> Error {
    let source = answer(error);
    match source.kind() {
        _ if is_verifiers(error) => Error::BpfRejected { what: what.into() },
        _ if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() => Error::NoBtf,
        io::ErrorKind::PermissionDenied => Error::BpfDenied,
        _ => Error::io(format!("cannot {what}"))(source),
    }
}

/// Returns whether the verifier rejected the program.
fn is_verifiers(error: &(dyn StdError + 'static)) -> bool {
    match error.downcast_ref() {
        Some(ProgramError::LoadError { verifier_log, .. }) => !verifier_log.to_string().is_empty(),
        _ => false,
    }
}

pub(crate) fn no_tracepoint(group: &str, name: &str, error: &(dyn StdError + 'static)) -> Error {
    let source = answer(error);
    match source.kind() {
        io::ErrorKind::NotFound => Error::NoTracepoint {
            name: format!("{group}:{name}"),
        },
        _ => bpf_refusal(&format!("attach to {group}:{name}"), error),
    }
}

fn answer(error: &(dyn StdError + 'static)) -> io::Error {
    let mut cause = Some(error);
    while let Some(one) = cause {
        if let Some(answer) = one.downcast_ref::<io::Error>() {
            return match answer.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(answer.kind(), answer.to_string()),
            };
        }
        cause = one.source();
    }
    // Later lines are the verifier's log, pages long.
    let text = error.to_string();
    io::Error::other(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("wrapped\nand a log")]
    struct Wrapped(#[source] io::Error);

    #[test]
    fn the_kernels_error_decides() {
        let wrapped = |code| Wrapped(io::Error::from_raw_os_error(code));
        let refused = no_tracepoint("lock", "contention_end", &wrapped(2));
        assert!(
            matches!(&refused, Error::NoTracepoint { name } if name == "lock:contention_end"),
            "{refused:?}"
        );
        if std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            for code in [1, 13] {
                let refused = bpf_refusal("load", &wrapped(code));
                assert!(matches!(refused, Error::BpfDenied), "{refused:?}");
            }
            let other = bpf_refusal("load it", &wrapped(22)).to_string();
            assert_eq!(other, "cannot load it: Invalid argument (os error 22)");
        }
    }
}
