//! The thread that holds the data segment's owner word as a robust futex. When the word is released, or tiptoe dies,
//! the agent (tiptoe's library) restores the program.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use tiptoe_sys::raw::gettid;
use tiptoe_wire::{Data, Geometry};

use super::{Segment, wake};
use crate::error::IoReason;

/// See set_robust_list(2).
#[repr(C)]
struct RobustList {
    first: *const RobustList,
    futex_offset: libc::c_long,
    pending: *const RobustList,
    /// The only entry, which links back to the head. Its futex is `futex_offset` bytes after the entry.
    entry: *const RobustList,
}

const FUTEX_WAITERS: u32 = 0x8000_0000;

pub(super) struct Owner {
    release: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Owner {
    pub(super) fn hold(data: &Segment) -> io::Result<Owner> {
        let file = data.file.as_fd().try_clone_to_owned()?;
        let (release, released) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let len = data.len as u64;
        let thread = std::thread::Builder::new()
            .name("tiptoe-owner".into())
            .spawn(move || {
                let held = Segment::map(file, len).map(|segment| own(&segment, &ready, &released));
                if let Err(error) = held {
                    let _ = ready.send(Err(error));
                }
            })?;
        is_ready
            .recv()
            .unwrap_or_else(|_| Err(IoReason::NoOwnerThread.into()))?;
        Ok(Owner {
            release: Some(release),
            thread: Some(thread),
        })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.release.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn own(segment: &Segment, ready: &mpsc::Sender<io::Result<()>>, released: &mpsc::Receiver<()>) {
    // The owner word's offset does not depend on the geometry.
    let geometry = Geometry {
        slots: 1,
        slabs: 1,
        rings: false,
        hits: false,
    };
    let Some(word) = Data::new(segment.words(), geometry).and_then(|data| data.owner()) else {
        let _ = ready.send(Err(IoReason::SmallSegment.into()));
        return;
    };
    let mut list = Box::new(RobustList {
        first: std::ptr::null(),
        futex_offset: 0,
        pending: std::ptr::null(),
        entry: std::ptr::null(),
    });
    let head: *const RobustList = &raw const *list;
    let entry = (&raw const list.entry).cast::<RobustList>();
    list.first = entry;
    list.entry = head;
    list.futex_offset = word.as_ptr() as libc::c_long - entry as libc::c_long;
    let len = std::mem::offset_of!(RobustList, entry);
    // SAFETY: the list lives until this thread has released the word. The list replaces libc's, but this thread
    // holds no robust mutex of libc.
    unsafe { libc::syscall(libc::SYS_set_robust_list, head, len) };
    // Release: the agent's thread that sees the word must see the plan's header.
    word.store(gettid() | FUTEX_WAITERS, Ordering::Release);
    let _ = ready.send(Ok(()));
    let _ = released.recv();
    list.first = head;
    word.store(0, Ordering::Release); // Release: orders the emptied list before this store.
    wake(word);
    // SAFETY: the kernel reads no list at 0. Without this call it would read `list` when this thread ends, after `list`
    // is freed.
    unsafe {
        libc::syscall(
            libc::SYS_set_robust_list,
            std::ptr::null::<RobustList>(),
            len,
        )
    };
}
