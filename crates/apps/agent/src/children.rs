//! Handles forked children, which have our patches, but must count nothing.
//!
//! Our code does nothing in a child, which it recognises without a system call (`Shared::is_home`). But a trap byte
//! (one-byte patch) raises a signal, which a tracer of the child sees. The signal handler then returns by a system
//! call, which a filter may forbid. So all patches must be removed before the child installs a filter (prctl, seccomp)
//! or asks its parent to trace it (ptrace). A child that shares its parent's memory (vfork) keeps the patches, because
//! the code is the parent's, too.
//!
//! A process that begins to trace such a child (ptrace ATTACH, SEIZE) first removes the trap bytes from the child's
//! memory ([`restore_in`]). The child may be running, so only trap bytes are removed, each by one store. Longer patches
//! may stay, because they begin with a jump, and trap only after the first byte, where the child's only thread never
//! is.

use tiptoe_sys::raw::{O_CLOEXEC, call, close, nr, open};
use tiptoe_wire::SiteFlags;

use crate::mask::{OURS, set_mask};
use crate::serve;
use crate::shared::{self, Shared};
use crate::signals;

/// Removes all patches, if this process is a forked child.
#[cold]
#[inline(never)] // so that the callers' other paths need no stack for the patcher's buffers
pub fn restore() {
    let Some(shared) = shared::get().filter(|shared| !shared.is_here()) else {
        return;
    };
    // No signal handler must run here, because it could run this code, or change what is being restored.
    let mask = set_mask(!OURS);
    serve::restore_forked(shared);
    set_mask(mask);
    if !signals::owned() {
        signals::block_as_believed();
    }
}

#[cold]
#[inline(never)] // as for `restore`
pub fn restore_in(pid: u32) {
    let Some(shared) = shared::get() else {
        return;
    };
    let Some(memory) = ChildMemory::open(pid) else {
        return;
    };
    if !memory.is_forked_from_here(shared) {
        return;
    }
    let armed = (0..shared.table.len()).filter(|index| shared.is_armed(*index));
    let traps = armed
        .filter_map(|index| shared.table.site(index))
        .filter(|site| site.flags.has(SiteFlags::TRAP));
    for site in traps {
        let [original, patched] = [site.original, site.patched].map(|bytes| bytes[0]);
        if memory.read(site.address) == Some([patched]) {
            memory.write(site.address, original);
        }
    }
}

struct ChildMemory(i32);

impl ChildMemory {
    fn open(pid: u32) -> Option<ChildMemory> {
        const READ_WRITE: i32 = 2;
        let mut path = [0u8; 24];
        let mut digits = [0u8; 10];
        let mut rest = pid;
        let mut first = digits.len();
        for (index, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            first = index;
            if rest == 0 {
                break;
            }
        }
        let number = digits.get(first..)?;
        let bytes = b"/proc/".iter().chain(number).chain(b"/mem");
        path.iter_mut()
            .zip(bytes)
            .for_each(|(to, byte)| *to = *byte);
        let path = core::ffi::CStr::from_bytes_until_nul(&path).ok()?;
        open(path, READ_WRITE | O_CLOEXEC).ok().map(ChildMemory)
    }

    /// A fork copies the pointer to our state, and wipes `here`.
    fn is_forked_from_here(&self, shared: &Shared) -> bool {
        let state = core::ptr::from_ref(shared) as u64;
        let is_copy = self.read(shared::address_of_pointer()) == Some(state.to_ne_bytes());
        is_copy && self.read(shared.address_of_here()) == Some([0; 4])
    }

    fn read<const LEN: usize>(&self, address: u64) -> Option<[u8; LEN]> {
        let mut bytes = [0; LEN];
        let at = bytes.as_mut_ptr() as usize;
        // SAFETY: the kernel writes at most the buffer's length.
        let read = unsafe {
            call(
                nr::PREAD64,
                [self.0 as usize, at, LEN, address as usize, 0, 0],
            )
        };
        (read == Ok(LEN)).then_some(bytes)
    }

    fn write(&self, address: u64, byte: u8) {
        let at = (&raw const byte) as usize;
        // SAFETY: the child has its own memory, and gets the program's original byte. A thread of the child runs the
        // original instruction, or the trap byte, which our handler handles.
        let _ = unsafe {
            call(
                nr::PWRITE64,
                [self.0 as usize, at, 1, address as usize, 0, 0],
            )
        };
    }
}

impl Drop for ChildMemory {
    fn drop(&mut self) {
        close(self.0);
    }
}
