//! contended_rust KIND ROUNDS [wait]: threads contend for a lock of std or parking_lot, ROUNDS times each.

use std::cell::Cell;
use std::hint::black_box;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Barrier, Condvar, Mutex, Once, OnceLock, RwLock};
use std::thread::{self, Thread, park, yield_now};
use std::time::Duration;

const THREADS: usize = 4;
const ONCES: usize = 1 << 12;

static HOT_MUTEX: Mutex<u64> = Mutex::new(0);
static HOT_RWLOCK: RwLock<u64> = RwLock::new(0);
static HOT_TURN: Mutex<usize> = Mutex::new(0);
static HOT_CONDVAR: Condvar = Condvar::new();
static HOT_BARRIER: Barrier = Barrier::new(THREADS);
static HOT_ONCES: [Once; ONCES] = [const { Once::new() }; ONCES];
static PARKED_TURN: AtomicUsize = AtomicUsize::new(0);
static PARKED: [OnceLock<Thread>; THREADS] = [const { OnceLock::new() }; THREADS];

static LOT_MUTEX: parking_lot::Mutex<u64> = parking_lot::Mutex::new(0);
static LOT_RWLOCK: parking_lot::RwLock<u64> = parking_lot::RwLock::new(0);
static LOT_TURN: parking_lot::Mutex<usize> = parking_lot::Mutex::new(0);
static LOT_CONDVAR: parking_lot::Condvar = parking_lot::Condvar::new();
static LOT_ONCES: [parking_lot::Once; ONCES] = [const { parking_lot::Once::new() }; ONCES];

struct Me {
    number: usize,
    round: Cell<usize>,
    receives: Receiver<()>,
    sends: Sender<()>,
}

impl Me {
    fn next(&self) -> usize {
        (self.number + 1) % THREADS
    }
}

fn work(times: u64) {
    (0..times).for_each(|at| {
        black_box(at);
    });
}

fn hold(held: &mut u64) {
    *held += 1;
    if held.is_multiple_of(16) {
        yield_now();
    }
    work(300);
}

fn mutex(_: &Me) {
    hold(&mut HOT_MUTEX.lock().expect("no thread panics"));
}

fn rwlock(me: &Me) {
    if me.number % 2 == 1 {
        let held = HOT_RWLOCK.read().expect("no thread panics");
        work(300 + *held % 2);
    } else {
        hold(&mut HOT_RWLOCK.write().expect("no thread panics"));
    }
}

fn condvar(me: &Me) {
    let mut turn = HOT_TURN.lock().expect("no thread panics");
    while *turn != me.number {
        turn = HOT_CONDVAR.wait(turn).expect("no thread panics");
    }
    *turn = me.next();
    HOT_CONDVAR.notify_all();
}

fn barrier(_: &Me) {
    HOT_BARRIER.wait();
}

fn once(me: &Me) {
    HOT_ONCES[me.round.get() % ONCES].call_once(|| thread::sleep(Duration::from_micros(50)));
}

fn mpsc(me: &Me) {
    me.receives.recv().expect("its sender lives");
    let _ = me.sends.send(()); // the first thread may already have ended
}

fn parks(me: &Me) {
    PARKED[me.number].get_or_init(thread::current);
    while PARKED_TURN.load(SeqCst) != me.number {
        park();
    }
    PARKED_TURN.store(me.next(), SeqCst);
    if let Some(next) = PARKED[me.next()].get() {
        next.unpark();
    }
}

fn join(_: &Me) {
    let other = thread::spawn(|| thread::sleep(Duration::from_micros(50)));
    other.join().expect("it does not panic");
}

fn lot_mutex(_: &Me) {
    hold(&mut LOT_MUTEX.lock());
}

fn lot_rwlock(me: &Me) {
    if me.number % 2 == 1 {
        let held = LOT_RWLOCK.read();
        work(300 + *held % 2);
    } else {
        hold(&mut LOT_RWLOCK.write());
    }
}

fn lot_condvar(me: &Me) {
    let mut turn = LOT_TURN.lock();
    while *turn != me.number {
        LOT_CONDVAR.wait(&mut turn);
    }
    *turn = me.next();
    LOT_CONDVAR.notify_all();
}

fn lot_once(me: &Me) {
    LOT_ONCES[me.round.get() % ONCES].call_once(|| thread::sleep(Duration::from_micros(50)));
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let call = match &*arguments[1] {
        "mutex" => mutex,
        "rwlock" => rwlock,
        "condvar" => condvar,
        "barrier" => barrier,
        "once" => once,
        "mpsc" => mpsc,
        "park" => parks,
        "join" => join,
        "lot_mutex" => lot_mutex,
        "lot_rwlock" => lot_rwlock,
        "lot_condvar" => lot_condvar,
        "lot_once" => lot_once,
        kind => panic!("no kind `{kind}`"),
    };
    let rounds: usize = arguments[2].parse().expect("a number");
    let mut stdin = std::io::stdin();
    if arguments.last().is_some_and(|last| last == "wait") {
        println!("ready");
        stdin.read_exact(&mut [0; 3]).expect("`go`");
    }
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
    senders[0].send(()).expect("its receiver lives");
    let threads = receivers.into_iter().enumerate().map(|(number, receives)| {
        let sends = senders[(number + 1) % THREADS].clone();
        thread::spawn(move || {
            let me = Me {
                number,
                round: Cell::new(0),
                receives,
                sends,
            };
            while me.round.get() < rounds {
                call(&me);
                me.round.set(me.round.get() + 1);
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    for thread in threads {
        thread.join().expect("it does not panic");
    }
    println!("done {}", rounds * THREADS);
    stdin.read_to_end(&mut Vec::new()).expect("its end");
}
