//! If a program cannot be traced or dies during the trace, or the trace is interrupted, tiptoe must print one clear
//! error and end with status 2. A program that survives must be unharmed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tiptoe_tests::{
    Process, Site, WaitingTarget, command, is_root, process, scaled, skipped, target,
};

fn sentence(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let mut lines = said.lines();
    let first = lines.next().unwrap_or_default();
    assert!(
        first.starts_with("error: ") && !first.contains("panicked"),
        "{said}"
    );
    let rest: Vec<&str> = lines.collect();
    assert!(
        rest.len() <= 1 && rest.iter().all(|line| line.starts_with("hint: ")),
        "{said}"
    );
    for word in words {
        assert!(said.contains(word), "no `{word}` in {said}");
    }
    assert!(output.stdout.is_empty(), "{said}");
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tiptoe-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn copy(&self, of: &Path, name: &str) -> PathBuf {
        let path = self.0.join(name);
        // If this process wrote the file, another test's child could inherit the descriptor, and exec would fail
        // (ETXTBSY).
        let copied = Command::new("cp").arg(of).arg(&path).status();
        assert!(copied.expect("cp").success(), "{}", path.display());
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn roots_process_and_a_user_without_rights() {
    if !is_root() {
        return skipped("another user", "needs root");
    }
    let folder = Folder::new("user");
    let tiptoe = folder.copy(Path::new(command().get_program()), "tiptoe");
    let waiting = WaitingTarget::through(&["env"], &target("hot"), &["2", "1000"]);
    let pid = waiting.pid.to_string();
    for via in ["auto", "agent", "kernel"] {
        let mut user = Command::new("setpriv");
        user.args(["--reuid", "65534", "--clear-groups"])
            .arg(&tiptoe);
        user.args(["probe", "add", "--via", via, "-p", &pid]);
        sentence(
            &process::output(&mut user),
            &["no permission", &pid, "cap_sys_ptrace"],
        );
    }
    waiting.end();
}

#[test]
fn the_capability_holds_in_a_user_namespace_only() {
    let waiting = WaitingTarget::through(&["env"], &target("hot"), &["2", "1000"]);
    let mut inside = Command::new("unshare");
    inside.args(["--user", "--map-root-user"]);
    inside.arg(command().get_program()).args(["probe", "add"]);
    let output = process::output(inside.args(["-p", &waiting.pid.to_string()]));
    if String::from_utf8_lossy(&output.stderr).starts_with("unshare: ") {
        return skipped("a user namespace", "this user may not create one");
    }
    let hint = "hint: cap_sys_ptrace is held in this user namespace only: run tiptoe outside of it (of the container)\n";
    sentence(&output, &["no permission", hint]);
    waiting.end();
}

/// A setuid program that gains rights ignores LD_PRELOAD, so only the kernel can trace the program.
#[test]
fn a_setuid_command() {
    if !is_root() {
        return skipped("a setuid program", "needs root");
    }
    let folder = Folder::new("setuid");
    let tiptoe = folder.copy(Path::new(command().get_program()), "tiptoe");
    let program = folder.copy(&target("hot"), "hot");
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&program, mode(0o4755)).expect("our own copy");
    for via in ["auto", "agent"] {
        let mut user = Command::new("setpriv");
        user.args(["--reuid", "65534", "--clear-groups"])
            .arg(&tiptoe);
        user.args(["probe", "add", "--via", via, "--"])
            .arg(&program);
        sentence(&process::output(&mut user), &["setuid", "hint: "]);
    }
    // A setuid program that root starts gets no more rights, so tiptoe's library may enter.
    let mut root = command();
    root.args(["probe", "add", "--"]).arg(&program);
    let output = process::output(root.args(["1", "1000"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("event (uprobe:hot:…, via agent)"),
        "{said}"
    );

    std::os::unix::fs::chown(&program, Some(65534), None).expect("our own copy");
    std::fs::set_permissions(&program, mode(0o4755)).expect("our own copy");
    let output = process::output(&mut root);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("event (uprobe:hot:…, via kernel)"), "{said}");
    assert!(
        said.contains("traced by the kernel: it is setuid"),
        "{said}"
    );
}

#[test]
fn a_program_for_another_machine() {
    const MACHINE: usize = 18;
    let folder = Folder::new("machine");
    let program = folder.copy(&target("hot"), "aarch64");
    let mut bytes = std::fs::read(&program).expect("our own copy");
    bytes[MACHINE] = 183;
    std::fs::write(&program, bytes).expect("our own copy");
    for via in ["auto", "agent", "kernel"] {
        let mut run = command();
        run.args(["probe", "add", "--via", via, "--"]).arg(&program);
        sentence(&process::output(&mut run), &["AArch64", "x86-64"]);
    }
}

#[test]
fn a_command_that_is_no_program() {
    let folder = Folder::new("nothing");
    for command_word in [folder.0.as_path(), Path::new("/etc/passwd")] {
        let mut run = command();
        run.args(["probe", "main", "--"]).arg(command_word);
        sentence(
            &process::output(&mut run),
            &[&*command_word.to_string_lossy()],
        );
    }
}

#[test]
fn a_thread_of_the_kernel_and_a_zombie() {
    let mut zombie = Command::new("true")
        .stdin(Stdio::null())
        .spawn()
        .expect("true");
    process::wait_until("the zombie", Duration::from_secs(10), || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", zombie.id()));
        stat.is_ok_and(|stat| stat.contains(") Z "))
    });
    for (pid, what) in [(2, "a thread of the kernel"), (zombie.id(), "a zombie")] {
        let mut run = command();
        run.args(["probe", "main", "-p", &pid.to_string()]);
        sentence(&process::output(&mut run), &[&pid.to_string(), what]);
    }
    zombie.wait().expect("our child");
}

#[test]
fn a_thread_and_tiptoe_itself() {
    let mut tiptoe = Command::new("sh");
    tiptoe.args(["-c", "exec \"$@\" -p $$", "sh"]);
    tiptoe.arg(command().get_program()).args(["probe", "main"]);
    sentence(&process::output(&mut tiptoe), &["this tiptoe itself"]);

    let thread = std::thread::spawn(look_at_own_thread);
    thread.join().expect("tiptoe said so");
}

fn look_at_own_thread() {
    // SAFETY: gettid takes nothing and cannot fail.
    let (thread, own) = (unsafe { libc::gettid() }, std::process::id());
    let mut run = command();
    run.args(["probe", "main", "-p", &thread.to_string()]);
    let hint = format!("-p {own} traces");
    sentence(&process::output(&mut run), &["is a thread of", &hint]);
}

#[test]
fn via_agent_is_refused_for_programs_it_cannot_enter() {
    for (flag, word) in [("-m32", "32-bit"), ("-static", "statically linked")] {
        let Ok(program) = tiptoe_tests::target_with("hot", &[flag]) else {
            skipped(flag, "no such compiler");
            continue;
        };
        let mut run = command();
        run.args(["probe", "add", "--via", "agent", "--"])
            .arg(&program);
        sentence(&process::output(&mut run), &[word, "--via kernel"]);
        let waiting = WaitingTarget::through(&["env"], &program, &["2", "1000"]);
        let mut attach = command();
        attach.args([
            "probe",
            "add",
            "--via",
            "agent",
            "-p",
            &waiting.pid.to_string(),
        ]);
        sentence(&process::output(&mut attach), &[word, "--via kernel"]);
        waiting.end();
    }
}

fn attach(pid: u32) -> Command {
    let mut attach = command();
    attach.args([
        "probe",
        "add",
        "down",
        "libc.so.6:write",
        "--duration",
        "0.2",
    ]);
    attach.args(["--budget", "off", "-p", &pid.to_string()]);
    attach.stderr(Stdio::piped());
    attach
}

#[test]
#[ignore = "nightly: killed at many moments"]
fn a_target_that_dies_on_the_way() {
    let rounds = scaled(500).max(25);
    for round in 0..rounds {
        let waiting = WaitingTarget::through(&["env"], &target("hot"), &["4", "0"]);
        let tiptoe = attach(waiting.pid)
            .stdout(Stdio::piped())
            .spawn()
            .expect("tiptoe starts");
        std::thread::sleep(Duration::from_micros(round * 300_000 / rounds));
        drop(waiting);
        let output = tiptoe.wait_with_output().expect("our child");
        match output.status.code() {
            Some(0) => assert!(!output.stdout.is_empty()),
            _ => sentence(&output, &[]),
        }
    }
}

#[test]
#[ignore = "nightly: interrupted at many moments"]
fn ctrl_c_at_any_moment() {
    let program = target("hot");
    let mut target = Process::waiting(&program, &["4", "0"]);
    let sites = ["add", "down"].map(|function| Site::new(target.pid(), &program, function));
    target.go();
    let rounds = scaled(500).max(25);
    for round in 0..rounds {
        let tiptoe = Process::start(&mut attach(target.pid()));
        std::thread::sleep(Duration::from_micros(round * 350_000 / rounds));
        tiptoe.signal(libc::SIGINT);
        let (_, status) = tiptoe.finish();
        let early = std::os::unix::process::ExitStatusExt::signal(&status) == Some(libc::SIGINT);
        let before_the_trace = status.code() == Some(128 + libc::SIGINT);
        assert!(status.success() || early || before_the_trace, "{status}");
        sites.iter().for_each(Site::wait_original);
        assert!(target.lives());
    }
    let (_, status) = target.finish();
    assert!(
        status.success(),
        "the program found a wrong result: {status}"
    );
}

#[test]
fn ctrl_c_of_a_command() {
    let rounds = scaled(200).max(10);
    for round in 0..rounds {
        let mut command = command();
        command
            .args(["probe", "add", "--budget", "off", "--"])
            .arg(target("hot"));
        command.args(["2", "0"]).stderr(Stdio::null());
        let tiptoe = Process::start(&mut command);
        std::thread::sleep(Duration::from_micros(round * 200_000 / rounds));
        // SAFETY: kill takes two numbers; the group is the test's own.
        unsafe { libc::kill(-(tiptoe.pid() as i32), libc::SIGINT) };
        let (_, status) = tiptoe.finish();
        let early = std::os::unix::process::ExitStatusExt::signal(&status) == Some(libc::SIGINT);
        let own = [Some(2), Some(128 + libc::SIGINT)].contains(&status.code());
        assert!(early || own, "{status}");
    }
}

/// A shell's background jobs ignore SIGINT.
#[test]
fn an_ignored_signal_stays_ignored() {
    let script = "trap '' INT TERM; exec \"$@\" -- grep SigIgn /proc/self/status";
    let mut traced = Command::new("sh");
    traced
        .args(["-c", script, "sh"])
        .arg(command().get_program());
    let output = process::output(traced.args(["probe", "libc.so.6:getenv"]));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mask = text.trim().rsplit('\t').next().unwrap_or_default();
    let mask = u64::from_str_radix(mask, 16).expect("a mask");
    let both = 1 << (libc::SIGINT - 1) | 1 << (libc::SIGTERM - 1);
    assert_eq!(mask & both, both, "{text}");
}
