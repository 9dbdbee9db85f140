//! Sums words of slabs; each slab has one thread's counters. [`correct`] handles the words of a timed function that
//! must not be summed.

use tiptoe_wire::calls::words;

pub fn add(sums: &mut [u64], words: &[u64]) {
    for (sum, word) in sums.iter_mut().zip(words) {
        *sum = sum.wrapping_add(*word);
    }
}

pub fn add_calls(sums: &mut [u64], own: &[u64]) {
    add(sums, own);
    correct(sums, own);
    // PENDING is an index, so its sum means nothing.
    if let Some(pending) = sums.get_mut(words::PENDING as usize) {
        *pending = 0;
    }
}

/// Corrects two sums of a timed function. The longest time must be a maximum. A thread's last call is still
/// counted at index 0 of the durations, and must move to the index in [`words::PENDING`].
pub fn correct(sums: &mut [u64], own: &[u64]) {
    let word = |word: u32| own.get(word as usize).copied().unwrap_or(0);
    let longest = word(words::LONGEST);
    if let Some(sum) = sums.get_mut(words::LONGEST as usize) {
        *sum = sum.wrapping_sub(longest).max(longest);
    }
    let pending = word(words::PENDING);
    let durations = sums.get_mut(words::DURATIONS as usize..);
    let durations = durations.unwrap_or_default();
    if pending < words::DURATION_COUNT.into()
        && let Some(sum) = durations.get_mut(pending as usize)
    {
        *sum = sum.wrapping_add(1);
        durations[0] = durations[0].wrapping_sub(1);
    }
}
