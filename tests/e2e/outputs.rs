//! Uses `-o FILE` in a folder to which other users may write. tiptoe's notes (limits of the result) must not be on
//! the command's stderr.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::PathBuf;
use std::process::Command;

use tiptoe_tests::process::output;
use tiptoe_tests::{command, is_root, skipped};

use crate::doctor::UnprivilegedTiptoe;

struct SharedFolder(PathBuf);

impl SharedFolder {
    fn new(name: &str) -> SharedFolder {
        let name = format!("tiptoe-outputs-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        fs::set_permissions(&folder, Permissions::from_mode(0o1777)).expect("our own folder");
        SharedFolder(folder)
    }
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn another_users_link_is_not_followed() {
    if !is_root() {
        return skipped("another user's link", "needs root");
    }
    let shared = SharedFolder::new("link");
    let (own, link, made) = (
        shared.0.join("own"),
        shared.0.join("link"),
        shared.0.join("made"),
    );
    fs::write(&own, "root's").expect("a file");
    symlink(&own, &link).expect("a link");
    lchown(&link, Some(65534), Some(65534)).expect("root gives it away");
    let instruments = [
        &["probe", "libc.so.6:getenv"][..],
        &["probe", "libc.so.6:getenv", "--json"],
        &["probe", "libc.so.6:getenv", "--record"],
        &["lock"],
        &["lock", "--kernel"],
        &["watch", "environ"],
        &["stat"],
        &["stat", "--csv"],
        &["stat", "--by", "scope"],
    ];
    for instrument in instruments {
        let mut tiptoe = command();
        tiptoe.args(instrument).arg("-o").arg(&link);
        let output = tiptoe.args(["--", "touch"]).arg(&made).output();
        let output = output.expect("tiptoe runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{instrument:?}: {said}");
        assert!(
            said.contains("another user's link leads there\nhint: -o FILE"),
            "{said}"
        );
    }
    assert_eq!(fs::read_to_string(&own).expect("a file"), "root's");
    assert!(!made.exists(), "it is refused before the command starts");
}

#[test]
fn new_reports_with_values_are_readable_only_for_their_owner() {
    if !is_root() {
        return skipped("two users", "needs root");
    }
    let (shared, user) = (SharedFolder::new("modes"), UnprivilegedTiptoe::new());
    let stat = &["stat", "-e", "page-faults"][..];
    let calls = &["probe", "libc.so.6:getenv", "--record"][..];
    let whose: [(&str, Command, &[&str], u32); 3] = [
        ("counts", user.with(&[]), stat, 0o644),
        ("calls", user.with(&[]), calls, 0o600),
        ("roots", command(), stat, 0o600),
    ];
    for (name, tiptoe, arguments, mode) in whose {
        let path = shared.0.join(name);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "umask 022; exec \"$@\"", "sh"])
            .arg(tiptoe.get_program())
            .args(tiptoe.get_args())
            .args(arguments)
            .arg("-o")
            .arg(&path);
        let output = shell.args(["--", "true"]).output().expect("sh runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let found = fs::metadata(&path).unwrap_or_else(|error| panic!("{name}: {error}: {said}"));
        assert_eq!(found.mode() & 0o7777, mode, "{name}: {said}");
    }
}

#[test]
fn notes_were_printed_to_the_commands_stderr() {
    if !is_root() {
        return skipped("the notes of all instruments", "needs root");
    }
    let _turn = tiptoe_tests::breakpoint::RegisterLock::wait();
    let shared = SharedFolder::new("notes");
    let path = shared.0.join("report");
    let late = "libtiptoe-none.so:f";
    let instruments = [
        (&["probe", "libc.so.6:getenv", late][..], "\nnote: "),
        (&["probe", "libc.so.6:getenv", "--json"], "\"notes\""),
        (&["lock"], "\nnote: "),
        (&["lock", "--kernel"], "\nnote: "),
        (&["watch", "environ"], "\nnote: "),
        (&["stat"], "\nnote: "),
        (&["stat", "--csv"], "\n# note: "),
        (&["stat", "-x,", "-I", "1000"], "# note: "),
    ];
    for (instrument, note) in instruments {
        for to_stdout in [false, true] {
            let file = match to_stdout {
                false => path.as_path(),
                true => "-".as_ref(),
            };
            // An ignored SIGINT gives every subcommand a note.
            let mut shell = Command::new("sh");
            shell
                .args(["-c", "trap '' INT; exec \"$@\"", "sh"])
                .arg(command().get_program())
                .args(instrument)
                .arg("-o")
                .arg(file)
                .args(["--", "sh", "-c", "echo own >&2"]);
            let run = output(&mut shell);
            let said = String::from_utf8_lossy(&run.stderr);
            assert_eq!(said, "own\n", "{instrument:?}");
            let report = match to_stdout {
                false => fs::read_to_string(&path).expect("a report"),
                true => String::from_utf8_lossy(&run.stdout).into_owned(),
            };
            let has_note = report.contains(note) && report.contains("(SIGINT) was ignored");
            assert!(has_note, "{instrument:?}: {report}");
        }
    }
}
