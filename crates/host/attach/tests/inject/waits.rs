//! Injections use threads in the middle of a system call, which must end as it would without tiptoe.

use super::*;

fn wait_in(call: &str, ms: i64, deadline: Duration, wake: impl Fn(&mut Target)) -> (i64, i64) {
    let mut target = Target::start("waits", &[call, &ms.to_string()], 4);
    target.wait_asleep();
    let injected = attach(target.pid(), None, deadline).unwrap_or_else(|e| panic!("{call}: {e}"));
    check(&injected, 1);
    assert_eq!(
        target.control.get(0),
        0,
        "{call} returned during the injection"
    );
    assert_clean(target.pid(), 1);
    wake(&mut target);
    target.control.wait(call, |control| control.get(0) != 0);
    if ms > 0 {
        let elapsed = target.control.get(3);
        assert!(
            elapsed >= ms - 2,
            "{call} of {ms} ms returned after {elapsed} ms"
        );
    }
    (target.control.get(1), target.control.get(2))
}

#[test]
fn waits_with_a_time_out_end_when_they_should() {
    let timed_out = i64::from(libc::ETIMEDOUT);
    let again = i64::from(libc::EAGAIN);
    let cases = [
        ("epoll", (0, 0)),
        ("poll", (0, 0)),
        ("ppoll", (0, 0)),
        ("select", (0, 0)),
        ("nanosleep", (0, 0)),
        ("futex", (-1, timed_out)),
        ("sem_timedwait", (-1, timed_out)),
        ("recv", (-1, again)),
        ("sigtimedwait", (-1, again)),
    ];
    // The cases run in parallel, because each takes two seconds.
    for some in cases.chunks(3) {
        std::thread::scope(|scope| {
            for &(call, expected) in some {
                scope.spawn(move || {
                    let got = wait_in(call, 2000, Duration::from_secs(1), |_| {});
                    assert_eq!(got, expected, "{call}");
                });
            }
        });
    }
}

#[test]
fn waits_without_a_time_out_end_by_their_event() {
    for (call, expected) in [
        ("epoll", 1),
        ("poll", 1),
        ("ppoll", 1),
        ("select", 1),
        ("read", 1),
    ] {
        let got = wait_in(call, -1, PATIENT, |target| {
            let stdin = target.child.stdin.as_mut().expect("stdin");
            stdin.write_all(b"x").expect("write");
        });
        assert_eq!(got, (expected, 0), "{call}");
    }
}

#[test]
fn waits_for_a_signal_still_get_it() {
    let interrupted = (-1, i64::from(libc::EINTR));
    for call in ["pause", "sigsuspend", "epoll", "poll", "select", "read"] {
        let got = wait_in(call, -1, PATIENT, |target| {
            signal(target.pid(), libc::SIGUSR1)
        });
        assert_eq!(got, interrupted, "{call}");
    }
    let got = wait_in("sigtimedwait", -1, PATIENT, |target| {
        signal(target.pid(), libc::SIGUSR2)
    });
    assert_eq!(got, (i64::from(libc::SIGUSR2), 0));
}

/// A signal that arrives while the thread runs injected code must interrupt the program's call.
#[test]
fn a_signal_during_the_injection_is_not_lost() {
    let (agent, _) = agent();
    for call in ["pause", "poll", "read", "epoll"] {
        let target = Target::start("waits", &[call, "-1"], 4);
        target.wait_asleep();
        let pid = target.pid();
        inject_with(pid, &agent, &mut |_, _| {
            signal(pid, libc::SIGUSR1);
            Ok(())
        })
        .expect(call);
        target.control.wait(call, |control| control.get(0) != 0);
        let got = (
            target.control.get(1),
            target.control.get(2),
            target.control.get(5),
        );
        assert_eq!(got, (-1, i64::from(libc::EINTR), 1), "{call}");
    }
}

pub fn signal(pid: u32, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).expect("signal");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal).expect("kill");
}
