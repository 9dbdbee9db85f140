use loom::sync::{Arc, Condvar, Mutex};
use loom::thread::{JoinHandle, spawn};

use crate::mutant::{AtomicU32, AtomicU64, Edge, Ordering::*, lose};
use crate::thread_lock::ENDING;
use crate::{ThreadLock, ThreadLockState as State};

/// A process with a session. Only the lock's holder may change `words`; two threads at once would make the words
/// differ.
#[derive(Default)]
struct Process {
    word: AtomicU32,
    words: [AtomicU64; 2],
    is_ended: AtomicU64,
    end: (Mutex<()>, Condvar),
}

impl Process {
    fn lock(&self) -> ThreadLock<'_> {
        ThreadLock::new(&self.word)
    }

    fn change(&self) {
        let [one, two] = [0, 1].map(|index| self.words[index].load(Relaxed));
        assert_eq!(one, two, "one thread changes the session");
        self.words[0].store(one + 1, Relaxed);
        self.words[1].store(one + 1, Relaxed);
    }

    /// Starts a thread that gets the caller's lock, as by clone(2) with CLONE_PARENT_SETTID.
    fn start(process: &Arc<Process>, id: u32) -> JoinHandle<bool> {
        process.word.store(id, Release);
        let process = Arc::clone(process);
        spawn(move || process.serve(id))
    }

    /// Releases the lock, as the kernel does when tiptoe's thread has ended.
    fn end(&self) {
        let _guard = self.end.0.lock();
        self.word.store(0, Release);
        self.end.1.notify_all();
    }

    /// Does not spin, because loom lets two spinning threads starve a third.
    fn wait_until_ended(&self) {
        let mut guard = self.end.0.lock().expect("no poison");
        while self.word.load(Relaxed) & ENDING != 0 {
            guard = self.end.1.wait(guard).expect("no poison");
        }
    }

    /// Runs tiptoe's thread for two changes. Returns `false` if asked to end.
    fn serve(&self, id: u32) -> bool {
        for _ in 0..2 {
            self.change();
            if self.lock().must_end(id) {
                self.end();
                return false;
            }
        }
        true
    }
}

/// Models a thread of the program that calls setns. The session then needs a new thread.
fn set_namespace(process: &Arc<Process>, id: u32) -> Option<JoinHandle<bool>> {
    let mut is_late = false;
    loop {
        match process.lock().request(id) {
            State::Taken => break,
            State::Borrowed if is_late => return None,
            State::Requested(holder) if is_late && process.lock().withdraw(holder) => return None,
            State::Ending(_) => process.wait_until_ended(),
            _ => {}
        }
        is_late = true;
    }
    process.change();
    Some(Process::start(process, id + 10))
}

fn call_at_once(other: Option<Edge>, served: Option<Edge>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let process = Arc::new(Process::default());
        process.word.store(1, Release);
        let first = spawn({
            let process = Arc::clone(&process);
            move || {
                lose(served);
                process.serve(1)
            }
        });
        let second = spawn({
            let process = Arc::clone(&process);
            move || {
                lose(other);
                let thread = set_namespace(&process, 3);
                thread.is_some_and(|thread| thread.join().expect("it serves"))
            }
        });
        let third = set_namespace(&process, 2);
        let third = third.is_some_and(|thread| thread.join().expect("it serves"));
        let serving = [first.join(), second.join(), Ok(third)];
        let serving = serving.map(|is_serving| usize::from(is_serving.expect("it ends")));
        assert_eq!(serving.iter().sum::<usize>(), 1, "the session has a thread");
    });
}

#[test]
fn calls_at_once_leave_a_session_its_one_thread() {
    call_at_once(None, None);
}

#[test]
#[should_panic(expected = "the session has a thread")]
fn mutant_end_in_two_steps() {
    call_at_once(None, Some(Edge::Exchange));
}

#[test]
#[should_panic(expected = "the session")]
fn mutant_request_in_two_steps() {
    call_at_once(Some(Edge::Exchange), None);
}

/// A session's thread ends the session while another thread wants to begin the next.
fn begin_next(beginner: Option<Edge>) {
    loom::model(move || {
        let process = Arc::new(Process::default());
        process.word.store(1, Release);
        let former = spawn({
            let process = Arc::clone(&process);
            move || {
                process.change();
                process.is_ended.store(1, Relaxed);
                process.change();
                process.word.store(0, Release); // the kernel
            }
        });
        lose(beginner);
        if process.lock().try_lock(2) {
            assert_eq!(
                process.is_ended.load(Relaxed),
                1,
                "the former session has ended"
            );
            process.change();
            assert_eq!(
                process.words[1].load(Relaxed),
                3,
                "the former thread is past its last change"
            );
            process.lock().unlock();
        }
        lose(None);
        former.join().expect("it ends");
        assert!(process.lock().is_free(), "the lock is free again");
    });
}

#[test]
fn a_session_begins_after_the_former_ones_thread() {
    begin_next(None);
}

#[test]
#[should_panic(expected = "the former")]
fn mutant_lock_without_acquire() {
    begin_next(Some(Edge::Access(Acquire)));
}
