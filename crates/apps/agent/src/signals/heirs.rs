//! Makes new programs and children inherit the program's own dispositions and masks.

use super::{Action, BOTH, OURS, SIG_IGN, believed, home, kernel_action, our_action};
use crate::mask::set_mask;
use crate::tls;

/// Blocks and ignores signals in the kernel as the program requested, because a new program inherits both. Returns the
/// argument for [`after_failed_exec`].
pub fn before_exec() -> u64 {
    let blocked = tls::blocked();
    block(blocked, true);
    for signal in BOTH {
        if believed(signal).is_some_and(|believed| believed.action().handler == SIG_IGN) {
            let ignored = Action {
                handler: SIG_IGN,
                ..Action::default()
            };
            let _ = kernel_action(signal, Some(&ignored));
        }
    }
    blocked
}

pub fn after_failed_exec(blocked: u64) {
    insist_ignored();
    block(blocked, false);
}

/// Blocks or unblocks `signals` in the kernel. This function must make no system call for an empty set, because a
/// child's filter may allow nothing but its exec.
fn block(signals: u64, blocks: bool) {
    if signals != 0 {
        let mask = set_mask(u64::MAX);
        set_mask(if blocks {
            mask | signals
        } else {
            mask & !signals
        });
    }
}

/// Installs our handlers again in a child for which the kernel dropped all handlers. Records that the program's
/// handlers were dropped, unless the record is the parent's.
pub fn after_clear() {
    for signal in BOTH {
        if let Some(believed) = believed(signal) {
            let mut now = believed.action();
            if now.handler > SIG_IGN && !home::is_anothers() {
                now = Action::default();
                believed.set_action(now);
            }
            let _ = kernel_action(signal, Some(&our_action(&now)));
        }
    }
}

/// Blocks the signals that the thread recorded as blocked, because the agent gave them back while the thread was inside
/// an intercepted call.
pub fn block_as_believed() {
    let believed = tls::blocked();
    tls::set_blocked(0);
    set_mask(set_mask(u64::MAX) & !OURS | believed);
}

fn insist_ignored() {
    for signal in BOTH {
        if let Some(believed) = believed(signal)
            && believed.action().handler == SIG_IGN
        {
            let _ = kernel_action(signal, Some(&our_action(&believed.action())));
        }
    }
}
