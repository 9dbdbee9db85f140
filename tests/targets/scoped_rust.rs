//! scoped_rust ROUNDS [wait]: futures keep their scopes (named parts of work) while two threads poll them in turns.
//! Per round: 1 call in `search`, 2 in `search/rank`, 3 in `tenant 1`, and 1 in none.

use std::future::poll_fn;
use std::hint::black_box;
use std::io::Read;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::thread;

use tiptoe_scope::Scope;

static SEARCH: Scope = Scope::new("search");
static RANK: Scope = Scope::new("rank");

#[unsafe(no_mangle)]
#[inline(never)]
/// Runs in each scope.
pub extern "C" fn work() {
    black_box(());
}

async fn later() {
    let mut polled = false;
    poll_fn(|_| match std::mem::replace(&mut polled, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

async fn rank() {
    work();
    later().await;
    work();
}

async fn search() {
    later().await;
    RANK.with(rank()).await;
    later().await;
    work();
}

async fn tenant() {
    for _ in 0..3 {
        work();
        later().await;
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds: u64 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(100);
    if arguments.next().is_some_and(|word| word == "wait") {
        println!("ready");
        let _ = std::io::stdin().read(&mut [0; 64]);
    }
    let (first, to_first) = channel::<Task>();
    let (second, to_second) = channel::<Task>();
    for _ in 0..rounds {
        let name = format!("tenant {}", 1);
        let tasks: [Task; 2] = [
            Box::pin(SEARCH.with(search())),
            Box::pin(Scope::named(&name).with(tenant())),
        ];
        for task in tasks {
            let _ = first.send(task);
        }
        work();
    }
    let left = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(2 * rounds));
    let run = |tasks: std::sync::mpsc::Receiver<Task>, other: std::sync::mpsc::Sender<Task>| {
        let left = left.clone();
        thread::spawn(move || {
            let mut context = Context::from_waker(Waker::noop());
            while left.load(std::sync::atomic::Ordering::SeqCst) > 0 {
                let Ok(mut task) = tasks.recv_timeout(std::time::Duration::from_millis(1)) else {
                    continue;
                };
                match task.as_mut().poll(&mut context) {
                    Poll::Pending => drop(other.send(task)),
                    Poll::Ready(()) => {
                        left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                }
            }
        })
    };
    let threads = [run(to_first, second), run(to_second, first)];
    for thread in threads {
        let _ = thread.join();
    }
    println!("done");
}
