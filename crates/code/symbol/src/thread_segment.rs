//! The segment of thread-local variables of a file.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadSegment {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) alignment: u64,
}

impl ThreadSegment {
    /// Returns the distance from the block's first byte to the thread pointer: the size, plus padding, so that the byte
    /// has its alignment in the file.
    pub(crate) fn distance(&self) -> u64 {
        let mask = self.alignment.max(1).wrapping_sub(1);
        let padding = self.size.wrapping_add(self.address).wrapping_neg() & mask;
        self.size.wrapping_add(padding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_block_ends_at_the_thread_pointer() {
        let check = |address, size, alignment, distance| {
            let segment = ThreadSegment {
                address,
                size,
                alignment,
            };
            assert_eq!(segment.distance(), distance, "{segment:?}");
        };
        check(0x3df0, 0x10, 8, 0x10);
        check(0x3df0, 0x11, 8, 0x18);
        check(0x3dc0, 0x44, 64, 0x80);
        check(0x3df0, 0x11, 0, 0x11);
        check(0x3dc8, 0x10, 64, 0x38);
    }
}
