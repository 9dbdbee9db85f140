//! A number for the calling thread.

/// Returns a thread-local's address, which no other living thread has.
#[cfg(all(feature = "std", not(tiptoe_loom)))]
#[inline]
pub(crate) fn this_thread() -> usize {
    std::thread_local! {
        static MARKER: u8 = const { 0 };
    }
    MARKER.with(|place| core::ptr::from_ref(place).addr())
}

/// Returns a number, computed from the stack's address, which several threads may share.
#[cfg(not(feature = "std"))]
pub(crate) fn this_thread() -> usize {
    let here = 0_u8;
    let page = (core::ptr::from_ref(&here).addr() >> 20) as u64;
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) as usize
}

#[cfg(all(feature = "std", tiptoe_loom, not(test)))]
pub(crate) fn this_thread() -> usize {
    0
}

#[cfg(all(feature = "std", tiptoe_loom, test))]
pub(crate) fn this_thread() -> usize {
    loom::thread_local! {
        static NUMBER: usize = crate::models::next_thread();
    }
    NUMBER.with(|number| *number)
}
