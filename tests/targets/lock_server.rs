//! lock_server REQUESTS [traced|until-closed]: a server with locks of `tiptoe-lock`, and eight clients. With
//! `traced` the server begins when tiptoe traces its locks; with `until-closed` it also ends when stdin closes.

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::{self, sleep, yield_now};
use std::time::{Duration, Instant};

use tiptoe_lock::{Histogram, Mutex, RwLock, Waits, is_traced, waits};

const CONNECTIONS: u64 = 8;
const KEYS: u64 = 64;
/// tiptoe must attach within this time.
const LIMIT: Duration = Duration::from_secs(60);

tiptoe_lock::class! {
    Store = "store of sessions";
    Journal = "journal"
}

static STORE: RwLock<Option<HashMap<u64, u64>>, Waits, Store> = RwLock::new(None);
static JOURNAL: Mutex<Vec<u64>, Waits, Journal> = Mutex::new(Vec::new());
static COUNT: Mutex<u64, Waits> = Mutex::new(0);

fn work(times: u64) {
    (0..times).for_each(|at| {
        black_box(at);
    });
}

#[inline(never)]
fn put(key: u64, value: u64) -> u64 {
    let mut store = STORE.write();
    work(2_000);
    let before = store.get_or_insert_default().insert(key, value);
    drop(store);
    let mut journal = JOURNAL.lock();
    journal.push(key);
    match journal.len() % 64 {
        0 => sleep(Duration::from_micros(500)),
        _ => work(1_000),
    }
    before.unwrap_or(0)
}

#[inline(never)]
fn get(key: u64) -> u64 {
    let store = STORE.read();
    work(500);
    store
        .as_ref()
        .and_then(|store| store.get(&key).copied())
        .unwrap_or(0)
}

#[inline(never)]
fn count() {
    let mut count = COUNT.lock();
    *count += 1;
    if count.is_multiple_of(16) {
        yield_now();
    }
}

fn serve(connection: UnixStream) {
    let mut answers = connection.try_clone().expect("a descriptor");
    for line in BufReader::new(connection).lines() {
        let line = line.expect("a request");
        let mut words = line.split(' ');
        let (what, mut number) = (words.next(), || {
            words.next().and_then(|word| word.parse().ok()).unwrap_or(0)
        });
        let value = match what {
            Some("put") => put(number(), number()),
            _ => get(number()),
        };
        count();
        let answer = format!("{value}\n");
        answers.write_all(answer.as_bytes()).expect("an answer");
    }
}

fn load(mut connection: UnixStream, client: u64, requests: u64) {
    let answers = connection.try_clone().expect("a descriptor");
    let mut answers = BufReader::new(answers).lines();
    for request in 0..requests {
        let key = (request * 7 + client) % KEYS;
        let line = match request % 2 {
            0 => format!("put {key} {request}\n"),
            _ => format!("get {key}\n"),
        };
        connection.write_all(line.as_bytes()).expect("a request");
        answers.next().expect("an answer").expect("an answer");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let requests: u64 = arguments[1].parse().expect("a number");
    if arguments.get(2).is_some_and(|word| word == "traced") {
        let until = Instant::now() + LIMIT;
        while !is_traced() {
            assert!(Instant::now() < until, "no tracer asks for locks");
            sleep(Duration::from_millis(1));
        }
    }
    if arguments.get(2).is_some_and(|word| word == "until-closed") {
        thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(0);
        });
    }
    thread::scope(|scope| {
        for client in 0..CONNECTIONS {
            let (near, far) = UnixStream::pair().expect("two sockets");
            scope.spawn(move || load(near, client, requests));
            scope.spawn(|| serve(far));
        }
    });
    assert_eq!(*COUNT.lock(), CONNECTIONS * requests);
    for (word, name, mode) in [
        ("reads", "store of sessions", "shared"),
        ("writes", "store of sessions", "exclusive"),
        ("journal", "journal", "exclusive"),
        ("unnamed", "", "exclusive"),
    ] {
        let (mut times, mut total_ns, mut max_ns) = (Histogram::default(), 0, 0);
        let rows = waits().rows();
        for row in rows.filter(|row| (row.name, row.mode.word()) == (name, mode)) {
            times.merge(&row.times);
            total_ns += row.total_ns;
            max_ns = max_ns.max(row.max_ns);
        }
        println!("expect {word}.count {}", times.total());
        println!("expect {word}.total_ns {total_ns}");
        println!("expect {word}.max_ns {max_ns}");
        for percent in [50, 90, 99] {
            let ns = times.percentile(f64::from(percent), max_ns);
            println!("expect {word}.p{percent}_ns {ns}");
        }
    }
    assert_eq!(waits().missed(), 0);
}
