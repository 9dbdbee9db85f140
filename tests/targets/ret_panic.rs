// ret_panic [wait]: Rust panics unwind probed frames. Prints what was dropped and caught, then the truth.
use std::io::Read;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static DROPPED: AtomicU64 = AtomicU64::new(0);
static CAUGHT: AtomicU64 = AtomicU64::new(0);

struct Calls(&'static str, AtomicU64, AtomicU64);

impl Calls {
    const fn new(name: &'static str) -> Calls {
        Calls(name, AtomicU64::new(0), AtomicU64::new(0))
    }

    fn enter(&self) {
        self.1.fetch_add(1, Relaxed);
    }

    fn leave<T>(&self, value: T) -> T {
        self.2.fetch_add(1, Relaxed);
        value
    }

    fn tell(&self) {
        let (entered, returned) = (self.1.load(Relaxed), self.2.load(Relaxed));
        println!("expect {0} {entered}\nreturns {0} {returned}\nleft {0} {1}", self.0, entered - returned);
        println!("inside {} 0", self.0);
    }
}

static REFUSES: Calls = Calls::new("ret_panic::refuses");
static HOLDS: Calls = Calls::new("ret_panic::holds");
static CATCHES: Calls = Calls::new("ret_panic::catches");
static RESUMES: Calls = Calls::new("ret_panic::resumes");
static DEEPENS: Calls = Calls::new("ret_panic::deepens");
static ACROSS: Calls = Calls::new("c_across");
static CLEANS: Calls = Calls::new("ret_panic::cleans");

#[inline(never)]
fn cleans(x: u64) -> u64 {
    CLEANS.enter();
    CLEANS.leave(std::hint::black_box(x) + 1)
}

struct Guard(Vec<u64>);

impl Drop for Guard {
    fn drop(&mut self) {
        assert_eq!(cleans(self.0[3]), 4);
        DROPPED.fetch_add(1, Relaxed);
    }
}

fn guard() -> Guard {
    Guard(std::hint::black_box((0..10).collect()))
}

#[inline(never)]
fn refuses(x: u64) -> u64 {
    REFUSES.enter();
    if std::hint::black_box(x) % 10 == 0 {
        panic!("tenth {x}");
    }
    REFUSES.leave(x)
}

#[inline(never)]
fn holds(x: u64) -> u64 {
    HOLDS.enter();
    let kept = guard();
    let result = refuses(x) + kept.0[0];
    HOLDS.leave(result)
}

#[inline(never)]
fn catches(x: u64) -> u64 {
    CATCHES.enter();
    let _kept = guard();
    let result = panic::catch_unwind(|| holds(x)).unwrap_or_else(|what| {
        CAUGHT.fetch_add(1, Relaxed);
        what.downcast_ref::<String>().expect("a text").len() as u64
    });
    CATCHES.leave(result)
}

#[inline(never)]
fn resumes(x: u64) -> u64 {
    RESUMES.enter();
    let _kept = guard();
    match panic::catch_unwind(|| holds(x)) {
        Ok(result) => RESUMES.leave(result),
        Err(what) => panic::resume_unwind(what),
    }
}

#[inline(never)]
fn deepens(depth: u64) -> u64 {
    DEEPENS.enter();
    let kept = guard();
    let result = if depth == 0 { refuses(0) } else { deepens(depth - 1) } + kept.0[1];
    DEEPENS.leave(result)
}

/// Panics may cross C's calling convention.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C-unwind" fn c_across(callee: extern "C-unwind" fn(u64) -> u64, x: u64) -> u64 {
    ACROSS.enter();
    let _kept = guard();
    let result = callee(x) + 1;
    ACROSS.leave(result)
}

extern "C-unwind" fn panics(x: u64) -> u64 {
    holds(x)
}

fn caught(run: impl FnOnce() -> u64) {
    if panic::catch_unwind(AssertUnwindSafe(run)).is_err() {
        CAUGHT.fetch_add(1, Relaxed);
    }
}

fn wait_for_start() {
    if std::env::args().last().as_deref() == Some("wait") {
        println!("ready");
        let _ = std::io::stdin().read(&mut [0; 64]).expect("a line");
    }
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    wait_for_start();
    for i in 0..1000 {
        caught(|| holds(i));
        catches(i);
        caught(|| resumes(i));
        caught(|| c_across(panics, i));
    }
    for depth in 0..20 {
        caught(|| deepens(depth * 50));
    }
    for i in 0..8 {
        let thread = std::thread::spawn(move || (0..=i).map(|k| holds(10 * k + i % 2)).sum::<u64>());
        CAUGHT.fetch_add(u64::from(thread.join().is_err()), Relaxed);
    }
    println!("dropped {} caught {}", DROPPED.load(Relaxed), CAUGHT.load(Relaxed));
    for calls in [&REFUSES, &HOLDS, &CATCHES, &RESUMES, &DEEPENS, &ACROSS, &CLEANS] {
        calls.tell();
    }
}
