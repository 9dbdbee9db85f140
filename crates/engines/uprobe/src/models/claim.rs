//! Two threads must never own one descriptor (it points to a slab of counters), and no thread may have a slab after the
//! session.

use loom::thread::spawn;
use tiptoe_sync::mutant::{Edge, lose};

use super::{leak, leak_many};
use crate::claim::{Claims, Descriptor};
use crate::primitive::{AtomicU32, AtomicU64, Ordering::*};

const DEAD: u32 = 9;
const SLAB: u64 = 0x1000;

fn claims(descriptors: usize) -> &'static Claims<'static> {
    let used = leak(AtomicU32::new(0));
    leak(Claims::new(leak_many(descriptors, Descriptor::new), used))
}

fn open_against_end(opener: Option<Edge>, agent: Option<Edge>) {
    loom::model(move || {
        let (claims, mapped) = (claims(1), leak(AtomicU64::new(0)));
        let thread = spawn(move || {
            lose(opener);
            let index = claims
                .claim(1, true, usize::MAX, |_, _| true)
                .expect("room");
            if claims
                .session()
                .is_some_and(|session| claims.open(index, SLAB, session))
            {
                assert_eq!(mapped.load(Relaxed), 1, "a session is seen whole");
            }
        });
        lose(agent);
        mapped.store(1, Relaxed);
        claims.begin();
        claims.end();
        thread.join().expect("opened or not");
        let descriptor = claims.descriptor(0).expect("the only one");
        assert_eq!(descriptor.slab.load(Relaxed), 0, "no slab stays open");
    });
}

#[test]
fn no_slab_stays_open() {
    open_against_end(None, None);
}

#[test]
#[should_panic(expected = "no slab stays open")]
fn mutant_open_without_fence() {
    open_against_end(Some(Edge::Fence(SeqCst)), None);
}

#[test]
#[should_panic(expected = "no slab stays open")]
fn mutant_end_without_fence() {
    open_against_end(None, Some(Edge::Fence(SeqCst)));
}

fn active_against_begin(thread: Option<Edge>, agent: Option<Edge>) {
    loom::model(move || {
        let (claims, mapped) = (claims(1), leak(AtomicU64::new(0)));
        let looking = spawn(move || {
            lose(thread);
            if claims.active() {
                assert_eq!(mapped.load(Relaxed), 1, "a session is seen whole");
            }
        });
        lose(agent);
        mapped.store(1, Relaxed);
        claims.begin();
        looking.join().expect("looked");
    });
}

#[test]
fn a_session_is_seen_whole() {
    active_against_begin(None, None);
}

#[test]
#[should_panic(expected = "a session is seen whole")]
fn mutant_begin_without_release() {
    active_against_begin(None, Some(Edge::Access(Release)));
}

#[test]
#[should_panic(expected = "a session is seen whole")]
fn mutant_active_without_acquire() {
    active_against_begin(Some(Edge::Access(Acquire)), None);
}

/// Two threads claim at once; `taken` of `room` descriptors belong to a dead thread.
fn two_claim(taken: usize, room: usize, lost: Option<Edge>) {
    loom::model(move || {
        let claims = claims(room);
        for _ in 0..taken {
            claims
                .claim(DEAD, true, usize::MAX, |_, _| true)
                .expect("room");
        }
        let claim = move |tid| {
            lose(lost);
            claims.claim(tid, false, usize::MAX, |_, owner| owner != DEAD)
        };
        let other = spawn(move || claim(2));
        let (one, two) = (claim(1), other.join().expect("claimed"));
        assert!(one.is_none() || one != two, "a descriptor has one owner");
        let got = [one, two].into_iter().flatten().count();
        assert!(got == room.min(2), "each claim gets a descriptor");
    });
}

#[test]
fn fresh_descriptors_have_one_owner() {
    two_claim(0, 2, None);
    two_claim(0, 1, None);
}

#[test]
#[should_panic(expected = "a descriptor has one owner")]
fn mutant_torn_count() {
    two_claim(0, 2, Some(Edge::Exchange));
}

#[test]
fn a_dead_thread_has_one_heir() {
    two_claim(1, 1, None);
    two_claim(1, 2, None);
    two_claim(2, 2, None);
}

#[test]
#[should_panic(expected = "a descriptor has one owner")]
fn mutant_torn_exchange() {
    two_claim(1, 1, Some(Edge::Exchange));
}

/// A new thread with a dead thread's id finds that id on the dead thread's descriptor while another thread takes the
/// descriptor over.
fn born_again(claimant: Option<Edge>) {
    loom::model(move || {
        let (claims, born) = (claims(2), leak(AtomicU32::new(0)));
        claims
            .claim(DEAD, true, usize::MAX, |_, _| true)
            .expect("room");
        let alive = |_, owner| owner != DEAD || born.load(Acquire) == 1;
        let again = spawn(move || {
            born.store(1, Release);
            claims.claim(DEAD, false, usize::MAX, alive)
        });
        lose(claimant);
        let one = claims.claim(1, false, usize::MAX, alive);
        let two = again.join().expect("claimed");
        assert!(one.is_none() || one != two, "a descriptor has one owner");
    });
}

#[test]
fn a_reused_thread_id_shares_no_descriptor() {
    born_again(None);
}

#[test]
#[should_panic(expected = "a descriptor has one owner")]
fn mutant_take_over_without_acquire() {
    born_again(Some(Edge::Access(Acquire)));
}

#[test]
fn an_heir_continues_the_counts() {
    loom::model(|| {
        let claims = claims(1);
        let (count, dead) = (leak(AtomicU64::new(0)), leak(AtomicU32::new(0)));
        claims
            .claim(DEAD, true, usize::MAX, |_, _| true)
            .expect("room");
        let dying = spawn(move || {
            count.store(count.load(Relaxed) + 1, Relaxed);
            dead.store(1, Release); // as the kernel reports a death after the thread's stores
        });
        let alive = |_, owner| owner != DEAD || dead.load(Acquire) == 0;
        if claims.claim(1, false, usize::MAX, alive).is_some() {
            assert_eq!(count.load(Relaxed), 1, "it sees the dead thread's count");
        }
        dying.join().expect("counted");
    });
}
