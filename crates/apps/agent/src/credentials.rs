//! Takes all rights away from the agent's thread. Otherwise the program, which can write that thread's stack, could use
//! them after it has given up its own.
//!
//! The thread first opens the files of /proc that it needs ([`crate::files`]). It then takes random ids that own
//! nothing, joins a new session keyring, drops all capabilities, sets no_new_privs, and enters a Landlock domain that
//! allows only reading /proc/self/task.
//!
//! A process whose ids equal all ids of a thread may trace the thread (ptrace(2)), and so access the program's memory.
//! The thread's saved id differs from its real id, because no process has, or can take, both.
//!
//! A change of ids clears the process's dumpable flag. Without the flag the user cannot trace the process, so the
//! thread sets the flag again.

use tiptoe_sys::raw::{Errno, call, close, nr};

use crate::files::{File, ProcFile};
use crate::memory;

const VERSION_3: u32 = 0x2008_0522;
const PR_GET_DUMPABLE: usize = 3;
const PR_SET_DUMPABLE: usize = 4;
const PR_SET_NO_NEW_PRIVS: usize = 38;
const JOIN_SESSION_KEYRING: usize = 1;
const UNOWNED: usize = 0xf000_0000;
/// The real id if the user namespace does not map the unowned ids. This id must not be the overflow id, 65534, which
/// real processes have.
const MAPPED: usize = 65_530;

pub fn drop_rights() {
    let dumpable = control(PR_GET_DUMPABLE, 0);
    give_up_ids();
    if let Ok(dumpable @ 0..=1) = dumpable {
        let _ = control(PR_SET_DUMPABLE, dumpable);
    }
    // SAFETY: the call takes only numbers. An anonymous keyring concerns this thread only.
    let _ = unsafe { call(nr::KEYCTL, [JOIN_SESSION_KEYRING, 0, 0, 0, 0, 0]) };
    let _ = drop_capabilities();
    let _ = control(PR_SET_NO_NEW_PRIVS, 1);
    let _ = landlock::confine();
}

fn control(option: usize, value: usize) -> Result<usize, Errno> {
    // SAFETY: the options used here take and return integers only.
    unsafe { call(nr::PRCTL, [option, value, 0, 0, 0, 0]) }
}

/// Gives up the user ids last, because changing groups needs the user's rights.
fn give_up_ids() {
    // SAFETY: the list is empty; the raw call changes this thread's groups only.
    let _ = unsafe { call(nr::SETGROUPS, [0; 6]) };
    let unowned = UNOWNED + 2 * (memory::random().unwrap_or(0) % 0x07ff_ffff);
    take_ids(nr::SETRESGID, nr::GETGID, unowned);
    take_ids(nr::SETRESUID, nr::GETUID, unowned);
}

/// Sets the real and the effective id to `unowned`, and the saved id to one more. If that is not allowed, uses
/// [`MAPPED`] in the same way, or else sets all three to the real id.
fn take_ids(set: usize, get: usize, unowned: usize) {
    // SAFETY: the raw calls change and return ids of this thread only.
    let take = |id, saved| unsafe { call(set, [id, id, saved, 0, 0, 0]) };
    if ![unowned, MAPPED]
        .into_iter()
        .any(|id| take(id, id + 1).is_ok())
    {
        // SAFETY: as above.
        let _ = unsafe { call(get, [0; 6]) }.map(|id| take(id, id));
    }
}

fn drop_capabilities() -> Result<usize, Errno> {
    let header = [VERSION_3, 0];
    let sets = [0u32; 6];
    let args = [header.as_ptr() as usize, sets.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: both records are valid for the length of the call.
    unsafe { call(nr::CAPSET, args) }
}

/// Landlock, by which a thread confines only itself (landlock(7)).
mod landlock {
    use super::{Errno, File, ProcFile, call, close, nr};

    const ASK_VERSION: usize = 1;
    const RULE_PATH_BENEATH: usize = 1;
    const READ_FILE: u64 = 1 << 2;
    const READ_DIR: u64 = 1 << 3;

    /// What each version of Landlock from 1 on can deny: rights to files, rights to TCP ports, and scopes.
    const VERSIONS: [[u64; 3]; 6] = [
        [0x1fff, 0, 0],
        [0x3fff, 0, 0],
        [0x7fff, 0, 0],
        [0x7fff, 3, 0],
        [0xffff, 3, 0],
        [0xffff, 3, 3],
    ];

    /// Denies all rights of the kernel's version, or of the newest in [`VERSIONS`], except reading the folder of
    /// threads. A kernel without Landlock is no risk, because the program cannot confine itself by Landlock either.
    pub(super) fn confine() -> Result<(), Errno> {
        // SAFETY: with these flags the call only returns Landlock's version, and reads no memory.
        let version = unsafe { call(nr::LANDLOCK_CREATE_RULESET, [0, 0, ASK_VERSION, 0, 0, 0]) }?;
        let known = VERSIONS.iter().take(version).next_back();
        let denied = known.ok_or(Errno(95))?;
        let len = denied.iter().take_while(|word| **word != 0).count() * size_of::<u64>();
        let record = denied.as_ptr() as usize;
        // SAFETY: the record lives through the call.
        let rules = unsafe { call(nr::LANDLOCK_CREATE_RULESET, [record, len, 0, 0, 0, 0]) }?;
        let done = allow_tasks(rules).and_then(|()| {
            // SAFETY: the call concerns this thread only.
            unsafe { call(nr::LANDLOCK_RESTRICT_SELF, [rules, 0, 0, 0, 0, 0]) }
        });
        close(rules as i32);
        done.map(|_| ())
    }

    fn allow_tasks(rules: usize) -> Result<(), Errno> {
        let Some(tasks) = File::open(ProcFile::Tasks) else {
            return Ok(());
        };
        // struct landlock_path_beneath_attr: the rights, then the folder's descriptor in the low half.
        let rule = [READ_FILE | READ_DIR, tasks.fd() as u64];
        let args = [rules, RULE_PATH_BENEATH, rule.as_ptr() as usize, 0, 0, 0];
        // SAFETY: the kernel reads 12 bytes of the record, which lives through the call.
        unsafe { call(nr::LANDLOCK_ADD_RULE, args) }.map(|_| ())
    }
}
