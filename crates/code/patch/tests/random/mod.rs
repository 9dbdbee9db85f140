use crate::machine::Registers;

/// xorshift64*: the same cases in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    pub fn registers(&mut self, helper: u64) -> Registers {
        let mut registers = [0; 17];
        registers.iter_mut().for_each(|r| *r = self.next());
        if self.below(2) == 0 {
            registers[1] = 0; // so that jrcxz goes both ways
        }
        registers[11] = helper;
        registers[16] = self.next() & 0x8d5 | 0x202;
        registers
    }
}

/// Instructions that do not change the stack.
const PLAIN: &[&[u8]] = &[
    &[0x90],
    &[0xf5],
    &[0xf9],
    &[0x98],
    &[0x99],
    &[0x91],
    &[0x31, 0xc0],
    &[0x89, 0xf8],
    &[0x66, 0x90],
    &[0x85, 0xff],
    &[0x11, 0xc8],
    &[0x19, 0xd2],
    &[0x48, 0x89, 0xe5],
    &[0x48, 0x01, 0xfa],
    &[0x83, 0xc0, 0x05],
    &[0x83, 0xff, 0x01],
    &[0x3c, 0x05],
    &[0x0f, 0xb6, 0xc7],
    &[0x8d, 0x47, 0x08],
    &[0x8d, 0x44, 0x7f, 0x01],
    &[0x48, 0x8d, 0x44, 0x7f, 0x01],
    &[0x67, 0x8d, 0x44, 0x7f, 0x01],
    &[0xc6, 0xc0, 0x05],
    &[0xc7, 0xc0, 1, 2, 3, 4],
    &[0xfe, 0xc0],
    &[0xff, 0xc0],
    &[0x05, 1, 2, 3, 4],
    &[0xa9, 1, 2, 3, 4],
    &[0xbf, 1, 2, 3, 4],
    &[0x81, 0xf9, 1, 2, 3, 4],
    &[0x0f, 0x92, 0xc0],
    &[0x0f, 0x44, 0xd1],
    &[0x48, 0x8d, 0x47, 0x08],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0xf3, 0x0f, 0x1e, 0xfa],
    &[0x48, 0x83, 0xc6, 0x10],
    &[0xb8, 0x01, 0x02, 0x03, 0x04],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x41, 0xb9, 0x01, 0x02, 0x03, 0x04],
    &[0x48, 0x81, 0xc7, 0x00, 0x01, 0x00, 0x00],
    &[0x49, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],
];

const READS_FLAGS: &[&[u8]] = &[
    &[0xf5],
    &[0x11, 0xc8],
    &[0x19, 0xd2],
    &[0x0f, 0x92, 0xc0],
    &[0x0f, 0x44, 0xd1],
];

/// Instructions relative to the instruction pointer: the bytes before the displacement, and after.
const RELATIVE: &[(&[u8], &[u8])] = &[
    (&[0x48, 0x8b, 0x05], &[]),
    (&[0x4c, 0x8d, 0x0d], &[]),
    (&[0xc7, 0x05], &[1, 2, 3, 4]),
    (&[0x80, 0x3d], &[7]),
    (&[0x01, 0x05], &[]),
    (&[0x66, 0x81, 0x0d], &[0x34, 0x12]),
];

const PUSHES: &[&[u8]] = &[
    &[0x50],
    &[0x55],
    &[0x41, 0x57],
    &[0x48, 0x83, 0xec, 0x08],
    &[0x6a, 5],
];

/// mov (%rsp),%r10; ret
pub const HELPER: &[u8] = &[0x4c, 0x8b, 0x14, 0x24, 0xc3];

pub struct Writer<'a> {
    pub at: u64,
    pub code: Vec<u8>,
    pub stack: u64,
    pub data: u64,
    pub helper: u64,
    pub random: &'a mut Random,
    pub are_flags_set: bool,
}

impl Writer<'_> {
    pub fn relative(&mut self, opcode: &[u8], target: u64, tail: &[u8]) {
        self.code.extend_from_slice(opcode);
        let next = self.at + (self.code.len() + 4 + tail.len()) as u64;
        self.code
            .extend_from_slice(&(target.wrapping_sub(next) as i32).to_le_bytes());
        self.code.extend_from_slice(tail);
    }

    /// Before the first instruction that reads flags, appends a test, because flags are undefined at an entry.
    pub fn plain(&mut self) -> &'static [u8] {
        let plain = PLAIN[self.random.below(PLAIN.len())];
        if READS_FLAGS.contains(&plain) {
            self.set_flags();
        }
        plain
    }

    pub fn set_flags(&mut self) {
        if !std::mem::replace(&mut self.are_flags_set, true) {
            self.code.extend_from_slice(&[0x85, 0xff]);
        }
    }

    pub fn skip(&mut self, opcode: u8) {
        let skipped = self.plain();
        if !matches!(opcode, 0xeb | 0xe3 | 0xe2) {
            self.set_flags();
        }
        self.code.extend_from_slice(&[opcode, skipped.len() as u8]);
        self.code.extend_from_slice(skipped);
    }

    pub fn step(&mut self, pushes: bool) {
        match self.random.below(12) {
            0 => {
                let condition = self.random.below(16) as u8;
                self.skip(0x70 | condition);
            }
            1 => {
                let opcode = [0xeb, 0xe3, 0xe2, 0xe1, 0xe0][self.random.below(5)];
                self.skip(opcode);
            }
            2 | 3 => {
                let (opcode, tail) = RELATIVE[self.random.below(RELATIVE.len())];
                let target = self.data + 8 * self.random.below(64) as u64;
                self.relative(opcode, target, tail);
            }
            4 if pushes => self.relative(&[0xe8], self.helper, &[]),
            5 if pushes => self.relative(&[0xff, 0x15], self.data + 1024, &[]),
            6 if pushes => self.code.extend_from_slice(&[0x41, 0xff, 0xd3]),
            7 | 8 if pushes => {
                let push = PUSHES[self.random.below(PUSHES.len())];
                self.code.extend_from_slice(push);
            }
            _ => {
                let plain = self.plain();
                self.code.extend_from_slice(plain);
            }
        }
    }

    pub fn finish(mut self) -> Vec<u8> {
        // mov stack_cell(%rip),%rsp
        self.relative(&[0x48, 0x8b, 0x25], self.stack, &[]);
        self.code.push(0xc3);
        self.code
    }
}
