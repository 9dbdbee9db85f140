//! Each method that takes a lock: bare, wrapped without a hook, and wrapped with the hook `Waits`. xtask compares the
//! instructions of `NAME_bare` and `NAME_wrapped`, and counts those that `NAME_bare` and `NAME_waits` execute.
#![expect(unsafe_code, reason = "names that can be found")]

use std::hint::black_box;
use std::time::Duration;

use lock_api::{RwLockUpgradableReadGuard as Upgradable, RwLockWriteGuard as Write};
use parking_lot::{RawMutex, RawRwLock};
use tiptoe_lock::{Contended, Nothing, Waits};

type Mutex<R> = lock_api::Mutex<R, u64>;
type RwLock<R> = lock_api::RwLock<R, u64>;

macro_rules! pairs {
    ($($lock:ident<$raw:ident> { $($name:literal: $way:expr;)+ })+) => {
        fn main() {
            $($({
                #[unsafe(export_name = concat!($name, "_bare"))]
                #[inline(never)]
                extern "C" fn bare(lock: &$lock<$raw>) {
                    let way: fn(&$lock<$raw>) = $way;
                    way(lock);
                    black_box(BARE);
                }
                #[unsafe(export_name = concat!($name, "_wrapped"))]
                #[inline(never)]
                extern "C" fn wrapped(lock: &$lock<Contended<$raw, Nothing>>) {
                    let way: fn(&$lock<Contended<$raw, Nothing>>) = $way;
                    way(lock);
                    black_box(WRAPPED);
                }
                #[unsafe(export_name = concat!($name, "_waits"))]
                #[inline(never)]
                extern "C" fn waits(lock: &$lock<Contended<$raw, Waits>>) {
                    let way: fn(&$lock<Contended<$raw, Waits>>) = $way;
                    way(lock);
                    black_box(WAITS);
                }
                black_box(bare as extern "C" fn(&_))(&$lock::new(0));
                black_box(wrapped as extern "C" fn(&_))(&$lock::new(0));
                black_box(waits as extern "C" fn(&_))(&$lock::new(0));
            })+)+
        }
    };
}

/// These numbers must differ: the compiler merges equal functions.
const BARE: u32 = 3;
const WRAPPED: u32 = 5;
const WAITS: u32 = 7;
const SHORT: Duration = Duration::from_millis(1);

pairs! {
    Mutex<RawMutex> {
        "lock": |lock| *lock.lock() += 1;
        "try_lock": |lock| {
            if let Some(mut guard) = lock.try_lock() {
                *guard += 1;
            }
        };
        "try_lock_for": |lock| {
            if let Some(mut guard) = lock.try_lock_for(SHORT) {
                *guard += 1;
            }
        };
        "unlock_fair": |lock| lock_api::MutexGuard::unlock_fair(lock.lock());
        "bump": |lock| lock_api::MutexGuard::bump(&mut lock.lock());
    }
    RwLock<RawRwLock> {
        "read": |lock| {
            black_box(*lock.read());
        };
        "write": |lock| *lock.write() += 1;
        "read_recursive": |lock| {
            black_box(*lock.read_recursive());
        };
        "try_read": |lock| {
            lock.try_read().map(|guard| black_box(*guard));
        };
        "try_write_for": |lock| {
            if let Some(mut guard) = lock.try_write_for(SHORT) {
                *guard += 1;
            }
        };
        "upgrade": |lock| *Upgradable::upgrade(lock.upgradable_read()) += 1;
        "downgrade": |lock| {
            black_box(*Write::downgrade(lock.write()));
        };
    }
}
