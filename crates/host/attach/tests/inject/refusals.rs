//! Refused injections, and targets that end or call exec during an injection.

use super::waits::signal;
use super::*;

#[test]
fn a_process_whose_first_thread_has_ended_can_be_injected() {
    // The test needs many rounds, because the thread is seldom just ending. If it is just ending, PTRACE_SEIZE fails
    // with EPERM, as for another user's thread.
    for _ in 0..scaled(2000) {
        let target = Target::start("loops", &["orphan"], 3);
        first(target.pid());
        target.finish();
    }
}

/// Regression: tiptoe read through the first thread's /proc folder, and took that thread's end for the process's end.
#[test]
fn a_process_whose_first_thread_ends_during_an_injection_continues() {
    let target = Target::start("loops", &["leaves"], 3);
    let pid = target.pid();
    let injected = inject_with(pid, &agent().0, &mut |_, _| {
        target.control.set(4, 1);
        target.control.wait("the first thread's end", |_| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat"));
            stat.is_ok_and(|stat| stat.contains(") Z "))
        });
        Ok(())
    });
    assert_eq!(injected.expect("it is injected").entry_result, 1);
    target.finish();
}

#[test]
fn a_target_that_dies_is_reported_as_died() {
    let target = Target::start("loops", &["spin"], 3);
    let pid = target.pid();
    let error = inject_with(pid, &agent().0, &mut |_, _| {
        signal(pid, libc::SIGKILL);
        Ok(())
    });
    let error = error.expect_err("dead");
    assert!(matches!(error, InjectError::Died { .. }), "{error}");
}

#[test]
fn a_target_that_calls_exec_is_reported_as_died() {
    let target = Target::start("loops", &["becomes"], 3);
    let (agent, entry_offset) = agent();
    let exec = || {
        target.control.set(3, 0);
        target.control.set(4, 1);
        target
            .control
            .wait("the next program", |control| control.get(3) != 0);
        Resident::None
    };
    let error = inject(Inject {
        entry_offset,
        resident: &exec,
        ..request(target.pid(), &agent, &mut |_, _| Ok(()))
    });
    let error = error.expect_err("another program");
    assert!(matches!(error, InjectError::Died { .. }), "{error}");
    target.finish();
}

fn switches(pid: u32, tid: i64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
    let counts = counts.filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok());
    counts.sum()
}

/// Regression: a vfork child kept the old program's memory in use. So tiptoe wrote its code there, and sent a thread
/// of the new program to that address.
#[test]
fn an_exec_during_the_search_leaves_the_new_program_alone() {
    let mut target = Target::start("loops", &["keeps"], 3);
    let (pid, thread) = (target.pid(), target.control.get(4));
    let mut go = target.child.stdin.take().expect("it is piped");
    let before = switches(pid, thread);
    let control = &target.control;
    let error = std::thread::scope(|scope| {
        scope.spawn(move || {
            // Each round of the search stops this thread once, which is a context switch.
            let is_searched = |_: &Control| switches(pid, thread) > before + 1;
            control.wait("the search for a thread", is_searched);
            control.set(3, 0);
            go.write_all(b"!").expect("the target reads");
        });
        inject(Inject {
            resident: &|| Resident::Entry(4096),
            deadline: Duration::from_secs(5),
            ..request(pid, b"", &mut |_, _| Ok(()))
        })
    });
    let error = error.expect_err("another program");
    control.wait("the next program", |control| control.get(3) != 0);
    target.finish();
    assert!(matches!(error, InjectError::Died { .. }), "{error}");
}

/// Regression: after an exec, tiptoe changed the new program's registers, masks and memory, at addresses of the old
/// program.
#[test]
fn masks_refuse_a_process_that_has_called_exec() {
    let target = Target::start("loops", &["becomes"], 3);
    let process = Process::new(target.pid()).expect("it lives");
    let masks = Masks {
        pid: target.pid(),
        program: process.running_program().expect("it lives"),
        spare: None,
        agent_code: [0, 0],
        signals: 0,
        words: Words {
            tls: 0,
            generation: 1,
            beginnings: [0, 0],
            is_glibc: true,
        },
    };
    assert_eq!(masks.hold(|| ()), Ok(()));
    target.control.set(3, 0);
    target.control.set(4, 1);
    let next = |control: &Control| control.get(3) != 0;
    target.control.wait("the next program", next);
    assert_eq!(masks.hold(|| ()), Err(MaskFailure::NotStopped));
    target.finish();
}

/// Regression: tiptoe locked /proc/PID/maps (flock(2)), so any process that may read that file could block tiptoe.
#[test]
fn a_lock_of_proc_maps_does_not_block_an_injection() {
    let target = Target::start("loops", &["spin"], 3);
    let maps = File::open(format!("/proc/{}/maps", target.pid())).expect("maps");
    maps.lock().expect("no other process holds it");
    first(target.pid());
    target.finish();
}

#[test]
fn the_holder_of_the_lock_of_proc_mem_is_named() {
    let target = Target::start("loops", &["spin"], 3);
    let memory = File::open(format!("/proc/{}/mem", target.pid())).expect("mem");
    memory.lock().expect("no other process holds it");
    let error = attach(target.pid(), None, Duration::from_millis(300)).expect_err("locked");
    let holder = format!("process {} holds the lock", std::process::id());
    assert!(
        matches!(&error, InjectError::Busy { why, .. } if why.to_string().contains(&holder)),
        "{error}"
    );
    drop(memory);
    first(target.pid());
    target.finish();
}

#[test]
fn a_failed_injection_leaves_the_target_as_it_was() {
    let target = Target::start("loops", &["malloc"], 3);
    let error = inject_with(target.pid(), b"no agent", &mut |_, _| Ok(())).expect_err("refused");
    assert!(matches!(error, InjectError::Refused { .. }), "{error}");
    let failing = &mut |_: &OwnedFd, _: &OwnedFd| Err(std::io::Error::other("no plan"));
    let error = inject_with(target.pid(), &agent().0, failing).expect_err("no plan");
    assert!(error.to_string().contains("no plan"), "{error}");
    std::thread::sleep(Duration::from_millis(100));
    assert_clean(target.pid(), 2);
    first(target.pid());
    target.finish();
}

fn is_stopped(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let stats =
        tasks.map(|task| std::fs::read_to_string(task.expect("a task").path().join("stat")));
    let mut states = stats.map(|stat| stat.is_ok_and(|stat| stat.contains(") T ")));
    states.all(|stopped| stopped)
}

#[test]
fn a_traced_or_stopped_target_is_refused() {
    let target = Target::start("loops", &["spin"], 3);
    let pid = nix::unistd::Pid::from_raw(target.pid() as i32);
    let options = nix::sys::ptrace::Options::empty();
    std::thread::spawn(move || {
        nix::sys::ptrace::seize(pid, options).expect("seize");
        let error = attach(pid.as_raw() as u32, None, PATIENT).expect_err("traced");
        assert!(
            matches!(error, InjectError::AlreadyTraced { .. }),
            "{error}"
        );
    })
    .join()
    .expect("the tracer");

    signal(target.pid(), libc::SIGSTOP);
    target.control.wait("stopped", |_| is_stopped(target.pid()));
    let error = attach(target.pid(), None, Duration::from_millis(300)).expect_err("stopped");
    assert!(
        matches!(&error, InjectError::Busy { why, .. } if why.to_string().contains("state T")),
        "{error}"
    );
    signal(target.pid(), libc::SIGCONT);
    first(target.pid());
    target.finish();
}

#[test]
fn an_ended_process_and_a_static_program_are_refused() {
    let ended = {
        Command::new("true")
            .spawn()
            .map(|mut c| (c.id(), c.wait()))
            .expect("true")
            .0
    };
    let error = attach(ended, None, PATIENT).expect_err("the process has ended");
    assert!(
        matches!(error, InjectError::NoSuchProcess { .. }),
        "{error}"
    );

    let source = folder().join("static.c");
    fs::write(
        &source,
        "#include <signal.h>\n#include <sys/prctl.h>\n#include <unistd.h>\n\
         int main(void) { return prctl(PR_SET_PDEATHSIG, SIGKILL) || pause(); }",
    )
    .expect("source");
    let program = folder().join("static");
    let cc = Command::new("cc")
        .arg("-static")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(cc.expect("cc").success());
    let mut child = Command::new(program).spawn().expect("static");
    let attached = attach(child.id(), None, PATIENT);
    child.kill().expect("kill");
    child.wait().expect("wait");
    let error = attached.expect_err("static");
    assert!(matches!(error, InjectError::Static { .. }), "{error}");
}
