//! Generates functions as varied as a compiler's, and loops that call them.
//!
//! In each function, %rdi is a random state, %rsi points to memory, %rdx is the computed value, and %rax the result.
//! As in most programs, no function reads %rax at its entry, so a probe that saves and restores %rax delays nothing.

pub(super) const FUNCTIONS: usize = 1024;
pub(super) const LOOPS: [usize; 5] = [1, 8, 64, 256, FUNCTIONS];
/// The number of words that [`Surrounding::Memory`] accesses (1 MiB).
pub(super) const MEMORY_WORDS: usize = 1 << 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surrounding {
    /// Long functions with branches, whose code and branch targets overflow the first caches.
    Code,
    Compute,
    /// Functions that also access memory at random; the accesses hide a probe's cost.
    Memory,
}

/// All surroundings, each at the index of its value.
pub(super) const SURROUNDINGS: [Surrounding; 3] =
    [Surrounding::Code, Surrounding::Compute, Surrounding::Memory];

const FRAMES: [(&[u8], &[u8]); 5] = [
    // push %rbp; mov %rsp,%rbp
    (&[0x55, 0x48, 0x89, 0xe5], &[0x5d, 0xc3]),
    // push %rbx; sub $16,%rsp
    (
        &[0x53, 0x48, 0x83, 0xec, 16],
        &[0x48, 0x83, 0xc4, 16, 0x5b, 0xc3],
    ),
    // sub $8,%rsp
    (&[0x48, 0x83, 0xec, 8], &[0x48, 0x83, 0xc4, 8, 0xc3]),
    // mov %rdi,%rcx
    (&[0x48, 0x89, 0xf9], &[0xc3]),
    // endbr64; push %r12; push %rbp
    (
        &[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54, 0x55],
        &[0x5d, 0x41, 0x5c, 0xc3],
    ),
];

pub(super) fn function(index: usize, surrounding: Surrounding) -> Vec<u8> {
    let mut choice = mix(index as u64);
    let (head, tail) = FRAMES[choice as usize % FRAMES.len()];
    let mut code = head.to_vec();
    if surrounding == Surrounding::Memory {
        touch(&mut code, choice as u32);
    }
    compute(&mut code, &mut choice);
    if surrounding == Surrounding::Code {
        for _ in 0..2 + choice % 4 {
            choice = mix(choice);
            skip(&mut code, 8 + (choice >> 40) as u8 % 40);
            compute(&mut code, &mut choice);
        }
    }
    code.extend([0x48, 0x89, 0xd0]); // mov %rdx,%rax
    code.extend(tail);
    code
}

fn compute(code: &mut Vec<u8>, choice: &mut u64) {
    for _ in 0..2 + (*choice >> 32) % 4 {
        *choice = mix(*choice);
        step(code, *choice);
    }
}

fn step(code: &mut Vec<u8>, choice: u64) {
    let immediate = ((choice >> 16) as u32).to_le_bytes();
    let short = (choice >> 56) as u8;
    match choice % 4 {
        0 => code.extend([0x48, 0x8d, 0x54, 0x3a, short]), // lea short(%rdx,%rdi),%rdx
        1 => code.extend([0x48, 0xc1, 0xc2, short % 63 + 1]), // rol $short,%rdx
        2 => code.extend([&[0x81, 0xf2][..], &immediate].concat()), // xor $immediate,%edx
        _ => code.extend([&[0x48, 0x81, 0xc2][..], &immediate].concat()), // add
    }
}

/// Appends a taken branch over `len` bytes.
fn skip(code: &mut Vec<u8>, len: u8) {
    code.extend([0xeb, len]);
    code.extend(std::iter::repeat_n(0x90, len.into()));
}

/// Appends code for the next random state, which selects a word to increment.
fn touch(code: &mut Vec<u8>, seed: u32) {
    let multiplier = (seed & 0x3fff_ffff) | 5;
    code.extend([0x48, 0x69, 0xff]); // imul $multiplier,%rdi,%rdi
    code.extend(multiplier.to_le_bytes());
    code.extend([0x48, 0x81, 0xc7]); // add $increment,%rdi
    code.extend((seed >> 1 | 1).to_le_bytes());
    code.extend([0x48, 0x89, 0xf9]); // mov %rdi,%rcx
    let shift = 64 - MEMORY_WORDS.trailing_zeros();
    code.extend([0x48, 0xc1, 0xe9, shift as u8]); // shr $shift,%rcx
    code.extend([0x48, 0x8b, 0x14, 0xce]); // mov (%rsi,%rcx,8),%rdx
    code.extend([0x48, 0xff, 0x04, 0xce]); // incq (%rsi,%rcx,8)
}

/// Returns the C function `run(laps, memory)`. Each lap calls every function once, not in the order of addresses.
pub(super) fn run(at: u64, functions: &[u64]) -> Vec<u8> {
    let mut code = vec![0x53, 0x48, 0x89, 0xfb]; // push %rbx; mov %rdi,%rbx
    let relative = |code: &mut Vec<u8>, to: u64| {
        let next = at + code.len() as u64 + 4;
        code.extend((to.wrapping_sub(next) as u32).to_le_bytes());
    };
    let lap = at + code.len() as u64;
    for i in 0..functions.len() {
        code.push(0xe8); // call
        relative(&mut code, functions[(i * 101 + 7) % functions.len()]);
    }
    code.extend([0x48, 0xff, 0xcb, 0x0f, 0x85]); // dec %rbx; jne
    relative(&mut code, lap);
    code.extend([0x5b, 0xc3]); // pop %rbx; ret
    code
}

/// Mixes bits, as SplitMix64's finalizer does.
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn functions_are_distinct_and_long_enough_for_a_jump() {
        for surrounding in SURROUNDINGS {
            let all: HashSet<_> = (0..FUNCTIONS).map(|i| function(i, surrounding)).collect();
            assert_eq!(all.len(), FUNCTIONS);
            assert!(all.iter().all(|code| (8..384).contains(&code.len())));
        }
    }

    #[test]
    fn every_function_is_called_once_in_a_lap() {
        let addresses: Vec<u64> = (0..FUNCTIONS as u64).map(|i| 0x10_0000 + 64 * i).collect();
        let code = run(0x1000, &addresses);
        let calls: HashSet<u64> = (0..FUNCTIONS)
            .map(|i| {
                let next = 4 + 5 * (i + 1);
                let field = code[next - 4..next].try_into().expect("four bytes");
                (0x1000 + next as u64).wrapping_add_signed(i32::from_le_bytes(field).into())
            })
            .collect();
        assert_eq!(calls, addresses.into_iter().collect());
    }
}
