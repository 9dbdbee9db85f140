//! Gives a thread a *slab*, a block of counters, in about 0.5 us. A *trampoline*, a probe's generated code, calls
//! [`cold`] if the thread has no slab: at its first hit of a probe in a session, after it created a child, or if all
//! slabs are taken.

use tiptoe_sys::raw::{getpid, gettid, thread_alive};
use tiptoe_wire::calls::{MAX_SLOT, RECORDS, UNDER, VALUED};
use tiptoe_wire::futex::UNSEEN;
use tiptoe_wire::ring::Record;
use tiptoe_wire::{Data, Site, SiteFlags};

use crate::calls;
use crate::clockwork;
use crate::forbidden;
use crate::own_thread::comm;
use crate::shared::{self, Shared};
use crate::taken_slab;
use crate::tls;

/// Counts or records one hit of a probe's slot (counter) for the calling thread, and gives the thread a slab for its
/// next hits. A child process counts nothing ([`Shared::is_home`]).
///
/// With [`UNDER`] in `argument`, only a thread inside `--under`'s function counts. It may have lost its slab by
/// creating a child.
pub extern "C" fn cold(argument: u64, arg1: u64, arg0: u64) {
    let Some(shared) = shared::get().filter(|shared| shared.is_home()) else {
        return;
    };
    // Relaxed: constant within a session.
    let pid = shared.pid.load(core::sync::atomic::Ordering::Relaxed);
    // The session must be loaded before the data segment. Otherwise a session could end in between, and the next
    // session's number would admit the ended session's slab.
    let Some(session) = shared.claims.session() else {
        return;
    };
    let Some(data) = shared.data() else { return };
    let slab = give_slab(shared, &data, pid, session).unwrap_or(0);
    let has = |flag: i32| argument & flag as u64 != 0;
    // If hits are grouped by a value and the thread got a slab, its trampoline counts the hit, because only the
    // trampoline knows the value.
    if (has(UNDER) && !data.is_inside(slab)) || (has(VALUED) && slab != 0) {
        return;
    }
    let slot = argument as u32 & (MAX_SLOT - 1);
    if !has(RECORDS) {
        return data.add(slab, slot);
    }
    let (at, args) = (clockwork::ticks(), [arg0, arg1]);
    data.record(slab, &Record { at, slot, args });
}

pub fn trapped(site: &Site, arg1: u64, arg0: u64) {
    let records = match site.flags.has(SiteFlags::RECORDS) {
        true => RECORDS as u64,
        false => 0,
    };
    cold(u64::from(site.slot) | records, arg1, arg0);
}

pub fn give_slab_to_caller() {
    if let Some(shared) = shared::get()
        && let Some(session) = shared.claims.session()
        && let Some(data) = shared.data()
    {
        give_slab(shared, &data, getpid(), session);
    }
}

/// Gives the calling thread a slab at its first futex wait, futex wake or scope of a session. Returns the slab's
/// address, or 0.
pub extern "C" fn first_slab() -> u64 {
    new_slab().unwrap_or(0)
}

fn new_slab() -> Option<u64> {
    let state = shared::get().filter(|state| state.is_home())?;
    let pid = state.pid.load(core::sync::atomic::Ordering::Relaxed); // constant within a session
    let session = state.claims.session()?;
    let data = state.data()?;
    let slab = give_slab(state, &data, pid, session);
    if slab.is_none() {
        data.add(0, state.lock_slot()? + UNSEEN);
    }
    Some(state.slab(&data, slab?))
}

/// Gives the calling thread a slab. `None` if the thread must use slab 0, the overflow slab of all threads.
pub fn give_slab(
    shared: &'static Shared,
    data: &Data<'static>,
    pid: u32,
    session: u64,
) -> Option<u32> {
    if data.geometry().rings && forbidden::look() {
        return None;
    }
    let tid = gettid();
    let index = match own_descriptor(shared, tid) {
        Some(index) => index,
        None => claim(shared, data, pid, tid)?,
    };
    let slab = index as u32 + 1;
    if slab >= data.geometry().slabs {
        return None;
    }
    if data.slab_owner(slab).is_none_or(|(owner, _)| owner != tid) {
        let comm = comm();
        if let Some(ring) = data.ring(slab) {
            ring.announce(tid, comm).then_some(())?;
        }
        data.enter(slab, tid, comm);
        data.set_credit(slab, shared.credit());
        calls::enter_session();
        taken_slab::clear_waits(shared, data, slab, tid);
        taken_slab::clear_scopes(shared, data, slab);
    }
    shared
        .claims
        .open(index, shared.slab(data, slab), session)
        .then_some(slab)
}

fn own_descriptor(shared: &Shared, tid: u32) -> Option<usize> {
    let index = shared.descriptor_index(tls::descriptor())?;
    (shared.claims.descriptor(index)?.owner() == tid).then_some(index)
}

fn claim(shared: &'static Shared, data: &Data<'static>, pid: u32, tid: u32) -> Option<usize> {
    if !tls::is_on_libcs_block() {
        return None;
    }
    // A dead thread's records must be read before another thread reuses their ring.
    let unread = |index| {
        let ring = data.ring(index as u32 + 1);
        ring.is_some_and(|ring| !ring.is_read())
    };
    let taken = |index, owner| thread_alive(pid, owner) || unread(index);
    let most = data.geometry().slabs.saturating_sub(1) as usize;
    let index = shared
        .claims
        .claim(tid, shared.keeps_slabs(), most, taken)?;
    calls::take_over(shared, data, index);
    tls::set_descriptor(shared.claims.descriptor(index)?);
    Some(index)
}
