// mixed_rust: what Rust programs do, after a line of stdin.
use std::collections::BTreeMap;
use std::panic;
use std::thread;

fn digits(thread: u64) -> usize {
    (0..1000).map(|i: u64| (i * thread).to_string().len()).sum()
}

fn main() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    let mut words = BTreeMap::new();
    for i in 0..5000_u64 {
        *words.entry(format!("k{}", i % 371)).or_insert(0) += i;
    }
    let sum: u64 = words
        .iter()
        .map(|(word, count)| word.len() as u64 * count)
        .sum();
    let threads: Vec<_> = (0..4)
        .map(|thread| thread::spawn(move || digits(thread)))
        .collect();
    let digits: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().expect("it ends"))
        .collect();
    panic::set_hook(Box::new(|_| {}));
    let odd = |i: &u32| panic::catch_unwind(|| assert!(i % 2 == 1)).is_err();
    let caught = (0..50).filter(odd).count();
    println!(
        "{} {sum} {digits:?} {caught} {}",
        line.trim(),
        1.25_f64.powf(2.5).sin()
    );
    std::process::exit(7);
}
