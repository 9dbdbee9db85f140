//! Handles a program that single-steps itself: while a thread's trap flag is set, each instruction raises SIGTRAP.
//!
//! The thread then steps through our code and trampolines (generated code), too. The program must see each of its own
//! instructions once, at the original address. So a step that ends at the copy of a displaced (overwritten) instruction
//! calls the program's handler with the original's address. A step that ends at any other instruction of ours calls no
//! handler.
//!
//! *Cost*: a step in a trampoline searches all sites (patched places).

use tiptoe_wire::Site;

use super::{Context, Info, RIP};
use crate::shared::{self, Shared};

enum End {
    Program,
    /// The copy of the instruction at this address.
    Copy(u64),
    Ours,
}

/// Calls `see` for a fault that the program must see, with the address that the fault would have without the agent.
pub(super) fn shown(info: &Info, context: &mut Context, see: impl FnOnce(&mut Context)) {
    let here = context.register(RIP);
    match end(info, here) {
        End::Program => see(context),
        End::Ours => {}
        End::Copy(original) => {
            context.set_register(RIP, original);
            see(context);
            // The handler may have changed the address, or the session may have ended.
            if context.register(RIP) == original && super::owned() {
                context.set_register(RIP, here);
            }
        }
    }
}

fn end(info: &Info, here: u64) -> End {
    const TRAP_TRACE: i32 = 2;
    let is_step = (info.signal, info.code) == (5, TRAP_TRACE);
    let shared = shared::get().filter(|shared| is_step && shared.is_ours(here));
    let Some(shared) = shared else {
        return End::Program;
    };
    copied(shared, here).map_or(End::Ours, End::Copy)
}

/// Returns the address of the instruction whose copy begins at `here`. A site's first instruction is excluded, because
/// its step was already shown at the site, before the jump.
fn copied(shared: &Shared, here: u64) -> Option<u64> {
    let mut sites = (0..shared.table.len()).filter_map(|index| shared.table.site(index));
    let site = sites.find(|site| code(site).contains(&here))?;
    let is_here = |resume: u16| site.trampoline + u64::from(resume) == here;
    let mut heads = site.heads().iter();
    let head = heads.find(|head| head.offset != 0 && !head.is_guard && is_here(head.resume))?;
    Some(site.address + u64::from(head.offset))
}

fn code(site: &Site) -> core::ops::Range<u64> {
    site.trampoline..site.trampoline + u64::from(site.code_len)
}
