//! Random numbers from the kernel.

/// Returns random words. Panics without getrandom(2) (Linux 3.17).
pub fn words<const N: usize>() -> [u64; N] {
    let mut words = [0u64; N];
    let len = size_of_val(&words);
    // SAFETY: the kernel writes at most the buffer's length.
    let got = unsafe { libc::getrandom(words.as_mut_ptr().cast(), len, 0) };
    // The kernel never shortens a request of up to 256 bytes.
    assert_eq!(usize::try_from(got), Ok(len), "getrandom(2)");
    words
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_words_are_alike() {
        let [one, two, three] = super::words();
        assert!(one != two && two != three && one != 0 && three != 0);
    }
}
