//! Checks whether a *site* (patched place) may still have the code that was patched, armed (patched) or not.
//!
//! The check is for a trap at a site that the copy of the address space ([`crate::feed`]) does not confirm. Other
//! memory may be mapped there, with trap bytes of its own or a copy of the code.

use tiptoe_wire::Site;

const TRAP: u8 = 0xcc;

/// Returns whether a site's bytes may be ours: each of the first `site.len` is original, patched or a trap, and each
/// later byte is original. `byte` reads a byte; unreadable bytes are ignored.
pub fn may_be_ours(site: &Site, byte: impl Fn(u64) -> Option<u8>) -> bool {
    let pairs = site.original.iter().zip(&site.patched).enumerate();
    // Zeroes at the end of `original` mean unknown bytes after a short function.
    let known = site.original.iter().rposition(|byte| *byte != 0);
    let held = known.map_or(0, |last| last + 1).max(site.len.into());
    pairs.take(held).all(|(at, (original, patched))| {
        let Some(found) = byte(site.address + at as u64) else {
            return true;
        };
        let inside = at < usize::from(site.len);
        found == *original || inside && (found == *patched || found == TRAP)
    })
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;

    fn check(site: &Site, memory: [u8; 8], want: bool) {
        let byte = |address: u64| memory.get((address - site.address) as usize).copied();
        assert_eq!(may_be_ours(site, byte), want, "{memory:x?}");
    }

    #[test]
    fn a_window_in_any_state_and_the_bytes_after_it() {
        let site = Site {
            address: 4096,
            len: 5,
            original: [0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x41, 0x56],
            patched: [0xe9, 0xcc, 0x06, 0x10, 0x20, 0x57, 0x41, 0x56],
            ..Site::default()
        };
        check(&site, site.original, true);
        check(&site, site.patched, true);
        check(
            &site,
            [0xcc, 0xcc, 0x06, 0x10, 0x20, 0x57, 0x41, 0x56],
            true,
        );
        check(&site, [0xcc; 8], false);
        check(
            &site,
            [0x55, 0x48, 0x89, 0xe5, 0x90, 0x57, 0x41, 0x56],
            false,
        );
    }

    #[test]
    fn a_foreign_trap_is_recognized_by_the_bytes_after_it() {
        let mut site = Site {
            address: 4096,
            len: 1,
            original: [0xc3, 0x90, 0x55, 0, 0, 0, 0, 0],
            patched: [0xcc, 0x90, 0x55, 0, 0, 0, 0, 0],
            ..Site::default()
        };
        check(&site, [0xcc, 0x90, 0x55, 1, 2, 3, 4, 5], true);
        check(&site, [0xcc, 0xc3, 0x55, 0, 0, 0, 0, 0], false);
        site.original = [0xc3, 0, 0, 0, 0, 0, 0, 0];
        check(&site, [0xcc, 7, 7, 7, 7, 7, 7, 7], true);
        assert!(may_be_ours(&site, |_| None), "no byte is readable");
    }
}
