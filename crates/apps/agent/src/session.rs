//! Begins and ends the state of a session, one period of tracing.
//!
//! The thread that tiptoe borrows, or a command's first thread, begins a session ([`crate::entry`]). The agent's thread
//! usually ends the session. When the program changes its namespaces, the agent's thread must start again; if it
//! cannot, a thread of the program ends the session. Each thread holds [`Shared`]'s lock while it begins or ends a
//! session. The agent's thread keeps the lock until the kernel has ended that thread, so no former session's thread
//! exists when the next session begins. A forked child ends its copy of the session without the lock.

use tiptoe_sys::raw::Errno;

use crate::clockwork;
use crate::locks;
use crate::scopes;
use crate::shared::Shared;

pub fn begin(shared: &Shared, data_fd: i32, plan_fd: i32) -> Result<(), Errno> {
    let (address, plan) = shared.map_session(data_fd, plan_fd)?;
    clockwork::set(&plan.clock());
    shared.publish(address);
    if let Some(data) = shared.data() {
        let geometry = data.geometry();
        let slabs = [0, geometry.slabs].map(|index| address as u64 + geometry.slab_offset(index));
        locks::begin(shared.lock_slot(), slabs[0]..slabs[1]);
        scopes::begin(shared.scope_slot(), slabs);
    }
    Ok(())
}

pub fn end(shared: &Shared) {
    end_records();
    shared.close_session();
}

/// Ends a session in which the agent's thread could not be started. The session's shared memory can be unmapped at
/// once, because no thread uses it.
pub fn give_up(shared: &Shared) {
    end_records();
    shared.drop_session();
}

/// Forgets a parent's session in a forked child, where its shared memory is not mapped.
pub fn forget(shared: &Shared) {
    end_records();
    shared.libraries.free_all_code();
    shared.forget_session();
}

fn end_records() {
    locks::end();
    scopes::end();
}
