//! Finds functions that read a return address: their own, or one further up.
//!
//! To follow a call to its return, tiptoe replaces the call's return address. So calls of a function that reads its
//! return address (for `dladdr`, a log, `setjmp`) must not be followed. These reads are found:
//! - level 0, its own: an access to the word below the CFA, or `mov %rax,(%rsp); ret`, as in a retpoline;
//! - level 1, its caller's, by frame pointers: `mov (%rbp),%rax; mov 8(%rax),%rax`;
//! - level N: one more `mov (%rax),%rax` per level.
//!
//! The CFA (the stack pointer before the call) is from unwind information, else from the first instructions. Not found
//! are reads by computed addresses (`lea`, a loop over frames) or through another function's pointer.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use crate::call_numbers::writes;
use crate::decode::{FunctionCode, direct_target};

/// The canonical frame address; the return address is in the word below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// Bytes above the stack pointer.
    AboveSp(i64),
    /// Bytes above %rbp.
    AboveBp(i64),
    /// No frame address, because the code is entered without a call.
    Nowhere,
}

/// The target of a call or jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Callee {
    /// The code at this address.
    Code(u64),
    /// The code whose address is in this word.
    Slot(u64),
}

/// The return addresses that a function reads, and the targets of its calls and jumps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReturnReads {
    /// Bit N: the function reads the return address of the Nth frame above.
    pub levels: u8,
    /// Targets of tail calls, which return to the function's caller.
    pub jumps: Vec<Callee>,
    /// Targets of calls.
    pub calls: Vec<Callee>,
}

const MOST_LEVELS: u8 = 7;
const WORD: i64 = 8;
const FRAMED: Cfa = Cfa::AboveBp(2 * WORD);

/// Returns what a function reads and calls. `cfa` returns the CFA at an address, from unwind information.
pub fn return_reads(function: &FunctionCode, cfa: impl Fn(u64) -> Option<Cfa>) -> ReturnReads {
    let mut reads = ReturnReads::default();
    let mut prologue = Prologue {
        depth: Some(WORD),
        has_pushed_bp: false,
        is_framed: false,
    };
    let mut chain = Chain::default();
    let mut stores_top = false;
    let inside = function.address..function.address + function.body().len() as u64;
    for instruction in function.decoder(0) {
        if instruction.is_invalid() {
            continue;
        }
        let frame = match touches_frame(&instruction) {
            true => cfa(instruction.ip()).or_else(|| prologue.cfa()),
            false => None,
        };
        let uses = frame.is_some_and(|frame| uses_slot(&instruction, frame));
        let pops = instruction.mnemonic() == Mnemonic::Pop && prologue.depth == Some(WORD);
        let returns_there = stores_top && instruction.flow_control() == FlowControl::Return;
        stores_top = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_kind() == OpKind::Memory
            && overlaps(&instruction, Register::RSP, 0);
        if uses || returns_there || pops && frame == Some(Cfa::AboveSp(WORD)) {
            reads.levels |= 1;
        }
        reads.levels |= chain.step(&instruction, frame);
        prologue.step(&instruction);
        let callee = callee(&instruction).filter(|to| match to {
            Callee::Code(to) => !inside.contains(to) || *to == function.address,
            Callee::Slot(_) => true,
        });
        match (callee, instruction.flow_control()) {
            (Some(to), FlowControl::Call | FlowControl::IndirectCall) => reads.calls.push(to),
            (Some(to), _) => reads.jumps.push(to),
            (None, _) => {}
        }
    }
    for list in [&mut reads.jumps, &mut reads.calls] {
        list.sort_unstable_by_key(|to| match to {
            Callee::Code(at) | Callee::Slot(at) => *at,
        });
        list.dedup();
    }
    reads
}

/// Returns the word through which a linkage table's stub jumps: `jmp *SLOT(%rip)`.
pub fn stub_slot(bytes: &[u8], address: u64) -> Option<u64> {
    let stub = FunctionCode {
        address,
        bytes,
        size: bytes.len(),
    };
    let mut decoder = stub.decoder(0).into_iter();
    let first = decoder.next()?;
    let jump = match first.mnemonic() {
        Mnemonic::Endbr64 => decoder.next()?,
        _ => first,
    };
    match callee(&jump)? {
        Callee::Slot(slot) if jump.flow_control() == FlowControl::IndirectBranch => Some(slot),
        _ => None,
    }
}

fn callee(instruction: &Instruction) -> Option<Callee> {
    match instruction.flow_control() {
        FlowControl::IndirectCall | FlowControl::IndirectBranch => instruction
            .is_ip_rel_memory_operand()
            .then(|| Callee::Slot(instruction.ip_rel_memory_address())),
        _ => direct_target(instruction).map(Callee::Code),
    }
}

fn touches_frame(instruction: &Instruction) -> bool {
    let base = instruction.memory_base();
    let moves_bp = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op1_kind() == OpKind::Register
        && instruction.op1_register() == Register::RBP;
    matches!(base, Register::RSP | Register::RBP)
        || moves_bp
        || instruction.mnemonic() == Mnemonic::Pop
}

fn uses_slot(instruction: &Instruction, frame: Cfa) -> bool {
    let (base, cfa) = match frame {
        Cfa::AboveSp(cfa) => (Register::RSP, cfa),
        Cfa::AboveBp(cfa) => (Register::RBP, cfa),
        Cfa::Nowhere => return false,
    };
    // `lock or $0,(%rsp)` is a memory barrier.
    let is_barrier =
        instruction.has_lock_prefix() && instruction.try_immediate(1).is_ok_and(|n| n == 0);
    overlaps(instruction, base, cfa - WORD) && !is_barrier
}

fn overlaps(instruction: &Instruction, base: Register, word: i64) -> bool {
    let size = match instruction.mnemonic() {
        Mnemonic::Lea | Mnemonic::Nop => 0,
        _ => instruction.memory_size().size() as i64,
    };
    let plain = instruction.memory_index() == Register::None
        && !matches!(instruction.memory_segment(), Register::FS | Register::GS);
    let at = instruction.memory_displacement64().cast_signed();
    let is_base = instruction.memory_base() == base;
    is_base && plain && size > 0 && at < word + WORD && at + size > word
}

struct Prologue {
    /// Bytes between the stack pointer and the CFA; `None` after the first branch.
    depth: Option<i64>,
    has_pushed_bp: bool,
    is_framed: bool,
}

impl Prologue {
    fn cfa(&self) -> Option<Cfa> {
        match self.is_framed {
            true => Some(FRAMED),
            false => self.depth.map(Cfa::AboveSp),
        }
    }

    fn step(&mut self, instruction: &Instruction) {
        let pushes = instruction.mnemonic() == Mnemonic::Push;
        let first = instruction.op0_register();
        let sets_bp = instruction.mnemonic() == Mnemonic::Mov
            && (first, instruction.op1_register()) == (Register::RBP, Register::RSP);
        self.is_framed |= self.has_pushed_bp && sets_bp;
        self.has_pushed_bp = pushes && first == Register::RBP;
        let straight = matches!(
            instruction.flow_control(),
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall
        );
        if !straight {
            self.depth = None;
        } else if instruction.flow_control() == FlowControl::Next {
            let more = moved(instruction);
            self.depth = self.depth.zip(more).map(|(depth, more)| depth + more);
        }
    }
}

fn moved(instruction: &Instruction) -> Option<i64> {
    let by_number = || instruction.try_immediate(1).ok().map(u64::cast_signed);
    let on_stack_pointer = instruction.op0_kind() == OpKind::Register
        && instruction.op0_register() == Register::RSP
        && instruction.op_count() > 1;
    match instruction.mnemonic() {
        Mnemonic::Sub if on_stack_pointer => by_number(),
        Mnemonic::Add if on_stack_pointer => by_number().map(|bytes| -bytes),
        Mnemonic::Cmp | Mnemonic::Test => Some(0),
        _ if on_stack_pointer => None,
        Mnemonic::Leave => None,
        _ => Some(-i64::from(instruction.stack_pointer_increment())),
    }
}

/// Registers that hold a frame pointer, and the frame's level; 0 is the function's own.
#[derive(Default)]
struct Chain {
    frame_pointers: Vec<(Register, u8)>,
}

impl Chain {
    fn step(&mut self, instruction: &Instruction, frame: Option<Cfa>) -> u8 {
        let base = instruction.memory_base();
        let held = |base| {
            self.frame_pointers
                .iter()
                .find(|(held, _)| *held == base)
                .copied()
        };
        let mut read = 0;
        if let Some((register, level)) = held(base)
            && overlaps(instruction, register, WORD)
        {
            read = 1 << level;
        }
        let loads = instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().is_gpr64();
        let frame = frame.filter(|frame| *frame == FRAMED);
        let level = match instruction.op1_kind() {
            _ if !loads => None,
            OpKind::Register if instruction.op1_register() == Register::RBP => frame.map(|_| 0),
            OpKind::Register => held(instruction.op1_register()).map(|(_, level)| level),
            OpKind::Memory if !overlaps(instruction, base, 0) => None,
            OpKind::Memory if base == Register::RBP => frame.map(|_| 1),
            OpKind::Memory => held(base).map(|(_, level)| level + 1),
            _ => None,
        };
        self.forget(instruction);
        let target = instruction.op0_register();
        let kept = |level: &u8| *level <= MOST_LEVELS && target != Register::RSP;
        self.frame_pointers
            .extend(level.filter(kept).map(|level| (target, level)));
        read
    }

    fn forget(&mut self, instruction: &Instruction) {
        if self.frame_pointers.is_empty() {
            return;
        }
        if instruction.flow_control() != FlowControl::Next
            && instruction.flow_control() != FlowControl::ConditionalBranch
        {
            self.frame_pointers.clear();
            return;
        }
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        let used = info.used_registers().iter();
        for used in used.filter(|used| writes(used.access())) {
            let register = used.register().full_register();
            self.frame_pointers.retain(|(held, _)| *held != register);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x1000;

    fn read_with(bytes: &[u8], cfa: impl Fn(u64) -> Option<Cfa>) -> ReturnReads {
        let function = FunctionCode {
            address: AT,
            bytes,
            size: bytes.len(),
        };
        return_reads(&function, cfa)
    }

    #[track_caller]
    fn check(bytes: &[u8], levels: u8) {
        assert_eq!(read_with(bytes, |_| None).levels, levels, "{bytes:x?}");
    }

    /// push %rbp; mov %rsp,%rbp
    const FRAME: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];

    #[track_caller]
    fn check_framed(bytes: &[u8], levels: u8) {
        check(&[&FRAME[..], bytes].concat(), levels);
    }

    #[test]
    fn a_functions_own_return_address_is_read_off_its_stack() {
        check(&[0x48, 0x8b, 0x04, 0x24, 0xc3], 1); // mov (%rsp),%rax
        check(&[0x50, 0x48, 0x8b, 0x44, 0x24, 0x08, 0xc3], 1); // push %rax; mov 8(%rsp),%rax
        check(&[0x48, 0x83, 0xec, 0x18, 0x48, 0x8b, 0x44, 0x24, 0x18], 1); // sub $24; mov 24(%rsp)
        check(&[0xff, 0x34, 0x24], 1); // push (%rsp)
        check(&[0x48, 0x89, 0x04, 0x24, 0x90, 0xc3], 1); // mov %rax,(%rsp); nop
        // call +2; pause; mov %rax,(%rsp); ret
        check(
            &[0xe8, 2, 0, 0, 0, 0xf3, 0x90, 0x48, 0x89, 0x04, 0x24, 0xc3],
            1,
        );
        check(&[0x5f, 0x0f, 0x05, 0x57, 0xc3], 1); // pop %rdi; syscall; push %rdi, as vfork does
        check(&[0x8b, 0x44, 0x24, 0x04, 0xc3], 1); // mov 4(%rsp),%eax: half of it
    }

    #[test]
    fn words_beside_the_return_address_are_no_reads_of_it() {
        check(&[0x48, 0x8b, 0x44, 0x24, 0x08, 0xc3], 0); // mov 8(%rsp),%rax: an argument
        check(&[0x48, 0x89, 0x44, 0x24, 0xf8, 0xc3], 0); // mov %rax,-8(%rsp): the red zone
        check(&[0x50, 0x48, 0x8b, 0x04, 0x24, 0x58, 0xc3], 0); // push %rax; mov (%rsp),%rax; pop
        check(&[0x48, 0x8d, 0x04, 0x24, 0xc3], 0); // lea (%rsp),%rax
        check(&[0xf0, 0x48, 0x83, 0x0c, 0x24, 0x00, 0xc3], 0); // lock orq $0,(%rsp): a barrier
        check(&[0x64, 0x48, 0x8b, 0x04, 0x24, 0xc3], 0); // mov %fs:(%rsp),%rax
        check(&[0x48, 0x8b, 0x04, 0x3c, 0xc3], 0); // mov (%rsp,%rdi),%rax
        check_framed(&[0x48, 0x8b, 0x45, 0xf8, 0xc9, 0xc3], 0); // mov -8(%rbp),%rax
        check_framed(&[0x48, 0x8b, 0x45, 0x10, 0xc9, 0xc3], 0); // mov 16(%rbp),%rax
        check(&[0x48, 0x8b, 0x45, 0x08, 0xc3], 0); // mov 8(%rbp),%rax without a frame
    }

    #[test]
    fn frame_pointers_lead_to_the_return_addresses_of_callers() {
        const OWN: [u8; 4] = [0x48, 0x8b, 0x45, 0x08]; // mov 8(%rbp),%rax
        const UP: [u8; 4] = [0x48, 0x8b, 0x45, 0x00]; // mov (%rbp),%rax
        const FURTHER: [u8; 3] = [0x48, 0x8b, 0x00]; // mov (%rax),%rax
        const READ: [u8; 4] = [0x48, 0x8b, 0x40, 0x08]; // mov 8(%rax),%rax
        const COPY: [u8; 3] = [0x48, 0x89, 0xe8]; // mov %rbp,%rax
        check_framed(&OWN, 1);
        check_framed(&[&UP[..], &READ].concat(), 2);
        check_framed(&[&UP[..], &FURTHER, &READ].concat(), 4);
        check_framed(&[&COPY[..], &READ].concat(), 1);
        check_framed(&[&COPY[..], &FURTHER, &READ].concat(), 2);
        check_framed(&UP, 0);
        // The register is, or may be, overwritten.
        check_framed(&[&UP[..], &[0x31, 0xc0], &READ].concat(), 0);
        check_framed(&[&UP[..], &[0xe8, 0, 0, 0, 0], &READ].concat(), 0);
        // Another register, with a test in between.
        check_framed(
            &[0x48, 0x8b, 0x4d, 0, 0x48, 0x85, 0xc9, 0x48, 0x8b, 0x51, 8],
            2,
        );
    }

    #[test]
    fn unwind_information_overrides_the_first_instructions() {
        // jne +1; ret; mov 24(%rsp),%rax
        let bytes = [0x75, 0x01, 0xc3, 0x48, 0x8b, 0x44, 0x24, 0x18];
        check(&bytes, 0);
        let above = |bytes| move |_| Some(Cfa::AboveSp(bytes));
        assert_eq!(read_with(&bytes, above(32)).levels, 1);
        assert_eq!(read_with(&bytes, above(24)).levels, 0);
        assert_eq!(read_with(&bytes, |_| Some(FRAMED)).levels, 0);
        // jne +0; pop %rbx: as if the unwind information missed a push.
        assert_eq!(read_with(&[0x75, 0, 0x5b, 0xc3], above(8)).levels, 0);
        // pop %rax; mov (%rsp),%rdi: where a new thread begins.
        let begins = [0x58, 0x48, 0x8b, 0x3c, 0x24];
        assert_eq!(read_with(&begins, |_| Some(Cfa::Nowhere)).levels, 0);
    }

    #[test]
    fn jumps_out_and_calls_are_separated_from_branches() {
        // je +4; call +0x100000; jmp *0x10(%rip); jmp -0x100
        let bytes = [
            &[0x74, 4][..],
            &[0xe8, 0, 0, 0x10, 0],
            &[0xff, 0x25, 0x10, 0, 0, 0],
            &[0xe9, 0, 0xff, 0xff, 0xff],
            &[0xff, 0xe0],
        ];
        let found = read_with(&bytes.concat(), |_| None);
        assert_eq!(found.calls, [Callee::Code(0x10_1007)]);
        assert_eq!(found.jumps, [Callee::Code(0xf12), Callee::Slot(0x101d)]);
    }

    #[test]
    fn stubs_of_a_linkage_table_jump_through_a_word() {
        let check = |bytes: &[u8], slot| assert_eq!(stub_slot(bytes, AT), slot, "{bytes:x?}");
        check(&[0xff, 0x25, 0x10, 0, 0, 0], Some(0x1016));
        check(
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x10, 0, 0, 0],
            Some(0x101a),
        );
        check(
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x10, 0, 0, 0],
            Some(0x101b),
        );
        check(&[0xff, 0x15, 0x10, 0, 0, 0], None);
        check(&[0xe9, 0, 0, 0, 0], None);
        check(&[], None);
    }
}
