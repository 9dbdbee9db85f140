//! Runs code and records all state that a program can see.

use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::sync::atomic::Ordering::Relaxed;

use crate::machine::{Machine, RECOVERED, RECOVERY, Registers, handle, read, write};

/// Length of the extended state. AMX, which a program must request, is excluded.
const EXTENDED: usize = 4096;
/// x87, SSE, AVX, AVX-512.
const COMPONENTS: u64 = 0xe7;
const YMM: u32 = 2;
const ZMM: u32 = 6;
/// How many bytes of the stack are compared above the return address, and below it, where instructions push.
const ABOVE: usize = 64;
const BELOW: usize = 8;
/// Offsets in the data page: the caller's stack pointer; the end of a stack for flags; the final stack pointer; the
/// stack for flags.
const CALLER: u64 = 4064;
const FLAGS_END: u64 = 4072;
const ENDED: u64 = 4080;
const FLAGS: u64 = 4056;

std::arch::global_asm!(
    ".bss",
    ".balign 64",
    "tiptoe_every_in: .zero 4096",
    "tiptoe_every_out: .zero 4096",
    "tiptoe_every_host: .zero 4096",
    "tiptoe_every_stack: .zero 1<<16",
    "tiptoe_every_stack_end: .zero 64",
    "tiptoe_every_registers: .zero 18*8",
    "tiptoe_every_mask: .zero 8",
    "tiptoe_every_caller: .zero 8",
    ".globl tiptoe_every_in, tiptoe_every_out, tiptoe_every_stack_end, tiptoe_every_registers",
    ".globl tiptoe_every_mask, tiptoe_every_run, tiptoe_every_over",
    ".text",
    "tiptoe_every_run:",
    "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15",
    "mov %rsp, tiptoe_every_caller(%rip)",
    "mov tiptoe_every_mask(%rip), %eax; xor %edx, %edx",
    "xsave64 tiptoe_every_host(%rip)",
    "xrstor64 tiptoe_every_in(%rip)",
    "lea tiptoe_every_stack_end(%rip), %rsp",
    "push 128+tiptoe_every_registers(%rip); popfq",
    "mov 0+tiptoe_every_registers(%rip), %rax; mov 8+tiptoe_every_registers(%rip), %rcx",
    "mov 16+tiptoe_every_registers(%rip), %rdx; mov 24+tiptoe_every_registers(%rip), %rbx",
    "mov 40+tiptoe_every_registers(%rip), %rbp; mov 48+tiptoe_every_registers(%rip), %rsi",
    "mov 56+tiptoe_every_registers(%rip), %rdi; mov 64+tiptoe_every_registers(%rip), %r8",
    "mov 72+tiptoe_every_registers(%rip), %r9; mov 80+tiptoe_every_registers(%rip), %r10",
    "mov 88+tiptoe_every_registers(%rip), %r11; mov 96+tiptoe_every_registers(%rip), %r12",
    "mov 104+tiptoe_every_registers(%rip), %r13; mov 112+tiptoe_every_registers(%rip), %r14",
    "mov 120+tiptoe_every_registers(%rip), %r15",
    "call *136+tiptoe_every_registers(%rip)",
    // Threads that faulted continue here, too, on an arbitrary stack.
    "tiptoe_every_over:",
    "mov %rax, 0+tiptoe_every_registers(%rip); mov %rcx, 8+tiptoe_every_registers(%rip)",
    "mov %rdx, 16+tiptoe_every_registers(%rip); mov %rbx, 24+tiptoe_every_registers(%rip)",
    "mov %rsp, 32+tiptoe_every_registers(%rip); mov %rbp, 40+tiptoe_every_registers(%rip)",
    "mov %rsi, 48+tiptoe_every_registers(%rip); mov %rdi, 56+tiptoe_every_registers(%rip)",
    "mov %r8, 64+tiptoe_every_registers(%rip); mov %r9, 72+tiptoe_every_registers(%rip)",
    "mov %r10, 80+tiptoe_every_registers(%rip); mov %r11, 88+tiptoe_every_registers(%rip)",
    "mov %r12, 96+tiptoe_every_registers(%rip); mov %r13, 104+tiptoe_every_registers(%rip)",
    "mov %r14, 112+tiptoe_every_registers(%rip); mov %r15, 120+tiptoe_every_registers(%rip)",
    "mov tiptoe_every_caller(%rip), %rsp",
    "pushfq; pop 128+tiptoe_every_registers(%rip)",
    "push $2; popfq",
    "mov tiptoe_every_mask(%rip), %eax; xor %edx, %edx",
    "xsave64 tiptoe_every_out(%rip)",
    "xrstor64 tiptoe_every_host(%rip)",
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx",
    "ret",
    options(att_syntax),
);

unsafe extern "C" {
    static mut tiptoe_every_in: [u8; EXTENDED];
    static mut tiptoe_every_out: [u8; EXTENDED];
    static mut tiptoe_every_stack_end: [u8; ABOVE];
    static mut tiptoe_every_registers: [u64; 18];
    static mut tiptoe_every_mask: u64;
    fn tiptoe_every_run();
    fn tiptoe_every_over();
}

#[derive(Clone, PartialEq, Eq)]
pub struct State {
    pub registers: Registers,
    /// The signal that the code raised, or 0.
    pub signal: i32,
    extended: Vec<u8>,
    data: Vec<u8>,
    /// The stack from the final stack pointer on.
    stack: Vec<u8>,
}

impl State {
    /// Returns the first difference. Of the flags, compares only `flags`.
    pub fn difference(&self, other: &State, flags: u64) -> Option<String> {
        let first = |what: &str, a: &[u8], b: &[u8]| {
            let at = a.iter().zip(b).position(|(a, b)| a != b)?;
            Some(format!("{what} at {at}: {:#x}, {:#x}", a[at], b[at]))
        };
        if self.signal != other.signal {
            return Some(format!("signals {}, {}", self.signal, other.signal));
        }
        let changed = (self.registers[16] ^ other.registers[16]) & flags;
        if changed != 0 {
            return Some(format!("flags {changed:#x}"));
        }
        let numbers = 0..16;
        let mut registers = numbers.filter(|&n| self.registers[n] != other.registers[n]);
        let register = registers.next().map(|number| {
            let [a, b] = [self, other].map(|state| state.registers[number]);
            format!("register {number}: {a:#x}, {b:#x}")
        });
        register
            .or_else(|| first("extended state", &self.extended, &other.extended))
            .or_else(|| first("data", &self.data, &other.data))
            .or_else(|| first("the stack", &self.stack, &other.stack))
            .or_else(|| (self.stack.len() != other.stack.len()).then(|| "the stack".into()))
    }
}

pub fn caller() -> u64 {
    tiptoe_every_over as *const () as u64
}

fn entry_stack() -> u64 {
    &raw const tiptoe_every_stack_end as u64 - 8
}

/// Returns code that may follow any instruction, because it returns on the caller's stack.
pub fn ending(machine: &Machine, at: u64) -> Vec<u8> {
    const STORE_STACK: [u8; 3] = [0x48, 0x89, 0x25];
    const LOAD_STACK: [u8; 3] = [0x48, 0x8b, 0x25];
    const PUSH_FLAGS: u8 = 0x9c;
    const RET: u8 = 0xc3;
    let mut code = Vec::new();
    let mut with_cell = |opcode: [u8; 3], cell: u64, then: &[u8]| {
        code.extend_from_slice(&opcode);
        let next = at + code.len() as u64 + 4;
        let distance = (machine.data.start + cell).wrapping_sub(next) as i32;
        code.extend_from_slice(&distance.to_le_bytes());
        code.extend_from_slice(then);
    };
    with_cell(STORE_STACK, ENDED, &[]);
    with_cell(LOAD_STACK, FLAGS_END, &[PUSH_FLAGS]);
    with_cell(LOAD_STACK, CALLER, &[RET]);
    code
}

pub fn registers(machine: &Machine, flags: u64) -> Registers {
    let data = machine.data.start;
    let mut registers = [0; 17];
    for (number, register) in registers.iter_mut().enumerate() {
        *register = 0x0123_4567_89ab_cd00 + number as u64;
    }
    let pointers = [(0, 3072), (3, 512), (5, 1536), (6, 2048), (7, 1024)];
    for (number, offset) in pointers {
        registers[number] = data + offset;
    }
    (registers[1], registers[2]) = (3, 0x11);
    registers[16] = flags & 0x8d5 | 0x202;
    registers
}

pub fn prepare() {
    recover();
    // SAFETY: tests need a processor with XSAVE, which has `xgetbv` and this leaf of `cpuid`. The machine's lock
    // excludes other users of the statics.
    unsafe {
        let mask = _xgetbv(0) & COMPONENTS;
        tiptoe_every_mask = mask;
        let mut area = [0; EXTENDED];
        for (at, byte) in area.iter_mut().enumerate() {
            *byte = (at * 37 + at / 64) as u8 & 0x3f;
        }
        // x87: control word, three values on its stack, their tags, all exceptions masked.
        area[..8].copy_from_slice(&[0x7f, 0x03, 0, 0x28, 0xe0, 0, 0, 0]);
        area[8..24].fill(0);
        area[24..32].copy_from_slice(&[0x80, 0x1f, 0, 0, 0xff, 0xff, 0, 0]);
        for register in 0..8 {
            let value = 0x9000_0000_0000_0000_u64 + register as u64;
            let at = 32 + register * 16;
            area[at..at + 8].copy_from_slice(&value.to_le_bytes());
            area[at + 8..at + 16].copy_from_slice(&[0xff, 0x3f, 0, 0, 0, 0, 0, 0]);
        }
        // Vector register 1 is an index.
        area[176..192].fill(0);
        for (component, len) in [(YMM, 16), (ZMM, 32)] {
            let at = __cpuid_count(0xd, component).ebx as usize + len;
            area[at..at + len].fill(0);
        }
        area[512..576].fill(0);
        area[512..520].copy_from_slice(&mask.to_le_bytes());
        tiptoe_every_in = area;
    }
}

fn recover() {
    RECOVERY.store(caller(), Relaxed);
    let stack = vec![0_u8; 1 << 17].leak();
    let stack = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: stack.len(),
    };
    // SAFETY: the stack is never freed.
    let set = unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE] {
        handle(signal);
    }
}

pub fn run(machine: &Machine, target: u64, registers: &Registers) -> State {
    let page = [0, 0, 0x80, 0x3f].repeat(1024);
    let stack = entry_stack() - BELOW as u64;
    write(machine.data.start, &page);
    write(machine.data.start + CALLER, &entry_stack().to_le_bytes());
    let flags_end = machine.data.start + FLAGS + 8;
    write(machine.data.start + FLAGS_END, &flags_end.to_le_bytes());
    write(stack, &[0x11; BELOW + 8 + ABOVE]);
    // SAFETY: the machine's lock excludes other threads. If the code faults, the handler continues at
    // `tiptoe_every_over`.
    unsafe {
        tiptoe_every_registers[..17].copy_from_slice(registers);
        tiptoe_every_registers[17] = target;
        tiptoe_every_out = [0; EXTENDED];
        tiptoe_every_run();
        let mut out = [0; 17];
        out.copy_from_slice(&tiptoe_every_registers[..17]);
        let signal = RECOVERED.swap(0, Relaxed);
        let word = |at| {
            let bytes = read(machine.data.start + at, 8);
            u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
        };
        if signal == 0 {
            out[16] = word(FLAGS);
        }
        write(machine.data.start + FLAGS, &[0; 8]);
        let mut extended = (&raw const tiptoe_every_out).read().to_vec();
        // Not compared: the last x87 instruction's address, and the header.
        extended[8..16].fill(0);
        extended[512..576].fill(0);
        let above = entry_stack() + 8;
        let near = (stack..above).contains(&word(ENDED));
        let from = if near { word(ENDED) } else { above };
        let top = above + ABOVE as u64;
        State {
            registers: out,
            signal,
            extended,
            data: read(machine.data.start, 4096),
            stack: read(from, (top - from) as usize),
        }
    }
}
