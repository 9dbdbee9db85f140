// ret_backtrace [wait]: prints the names of probed frames by Rust's backtrace.
use std::backtrace::Backtrace;
use std::io::Read;
use std::panic;

/// Tests find this function by its plain name.
#[unsafe(no_mangle)]
#[inline(never)]
fn looks(x: u64) -> u64 {
    let trace = Backtrace::force_capture().to_string();
    // The text has no addresses, so it is the same in each run.
    trace.lines().for_each(|line| println!("{line}"));
    std::hint::black_box(x) + 1
}

#[inline(never)]
fn nests(depth: u64) -> u64 {
    let rest = if depth == 0 { looks(0) } else { nests(depth - 1) };
    std::hint::black_box(rest) + 1
}

#[inline(never)]
fn panics(x: u64) -> u64 {
    if std::hint::black_box(x) == 1 {
        panic!("seen");
    }
    std::hint::black_box(x) + 1
}

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        looks(2);
    }
}

#[inline(never)]
fn holds(x: u64) -> u64 {
    let _guard = Guard;
    panics(x) + 1
}

fn main() {
    // The hook runs before the frames are unwound.
    panic::set_hook(Box::new(|_| {
        looks(1);
    }));
    if std::env::args().last().as_deref() == Some("wait") {
        println!("ready");
        let _ = std::io::stdin().read(&mut [0; 64]).expect("a line");
    }
    assert_eq!(nests(5), 7);
    assert!(panic::catch_unwind(|| holds(1)).is_err());
    assert_eq!(std::thread::spawn(|| nests(3)).join().expect("no panic"), 5);
    for (name, entries, left) in [
        ("looks", 4, 0),
        ("ret_backtrace::nests", 10, 0),
        ("ret_backtrace::panics", 1, 1),
        ("ret_backtrace::holds", 1, 1),
    ] {
        println!("expect {name} {entries}\nreturns {name} {}", entries - left);
        println!("left {name} {left}\ninside {name} 0");
    }
}
