//! Computes a BPF program's stack use from its instructions.

/// Returns how many bytes below the frame pointer (r10) these instructions reach. Ignores branches and variable
/// offsets.
pub fn stack_bytes(program: &[u64]) -> i32 {
    let mut lowest = 0;
    // Each register's distance from the frame pointer; `None` if the register was computed otherwise.
    let mut from_frame = [None; 16];
    from_frame[10] = Some(0);
    let mut instructions = program.iter();
    while let Some(word) = instructions.next() {
        let [code, registers, ..] = word.to_le_bytes();
        let (to, from) = (usize::from(registers & 15), usize::from(registers >> 4));
        let offset = i32::from((word >> 16) as i16);
        let value = (word >> 32) as i32;
        let accessed = match code & 7 {
            1 => from_frame[from],
            2 | 3 => from_frame[to],
            _ => None,
        };
        lowest = lowest.min(accessed.map_or(0, |at| at + offset));
        match code {
            0x18 => {
                instructions.next(); // the second half of a 16-byte load
                from_frame[to] = None;
            }
            0xbf => from_frame[to] = from_frame[from],
            0x07 => {
                from_frame[to] = from_frame[to].map(|at: i32| at + value);
                lowest = lowest.min(from_frame[to].unwrap_or(0));
            }
            _ if to != 10 && matches!(code & 7, 0 | 1 | 4 | 7) => from_frame[to] = None,
            _ => {}
        }
    }
    -lowest
}
