//! Decodes the memory access of an instruction that has run, because watchpoints report accesses only afterwards.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use tiptoe_event::store::{Source, Store};

use crate::decode::FunctionCode;

/// Returns the memory access of the instruction that ends at `end`. `None` without such an access, or if its value or
/// address cannot be decoded.
pub fn store_before(function: &FunctionCode, end: u64) -> Option<Store> {
    let instructions = function.decoder(0).into_iter();
    let mut up_to = instructions.take_while(|instruction| instruction.next_ip() <= end);
    store(&up_to.find(|instruction| instruction.next_ip() == end)?)
}

fn store(instruction: &Instruction) -> Option<Store> {
    if !(0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory) {
        return None;
    }
    let (source, shift) = source(instruction)?;
    let is_relative = instruction.is_ip_rel_memory_operand();
    let number = |register: Register| match register {
        Register::None => Some(None),
        register if register.is_gpr64() => Some(Some(register.number() as u8)),
        _ => None,
    };
    Some(Store {
        source,
        shift,
        width: u8::try_from(instruction.memory_size().size()).ok()?,
        base: match is_relative {
            true => None,
            false => number(instruction.memory_base())?,
        },
        index: number(instruction.memory_index())?,
        scale: instruction.memory_index_scale() as u8,
        displacement: instruction.memory_displacement64(),
        is_elsewhere: instruction.segment_prefix() != Register::None,
    })
}

fn source(instruction: &Instruction) -> Option<(Source, u8)> {
    let stores = instruction.op0_kind() == OpKind::Memory;
    let register = |op| match instruction.op_kind(op) {
        OpKind::Register => general(instruction.op_register(op)),
        _ => None,
    };
    let immediate = || instruction.try_immediate(1).ok();
    let from = |of: fn(u8) -> Source| register(1).map(|(number, shift)| (of(number), shift));
    match instruction.mnemonic() {
        Mnemonic::Mov if stores => from(Source::Register)
            .or_else(|| immediate().map(|value| (Source::Immediate(value), 0))),
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd => {
            register(0).map(|(number, shift)| (Source::Register(number), shift))
        }
        Mnemonic::Xchg | Mnemonic::Xadd if stores => from(Source::Exchanged),
        Mnemonic::Cmpxchg => from(Source::Compared),
        Mnemonic::Inc => Some((Source::Added(1), 0)),
        Mnemonic::Dec => Some((Source::Added(u64::MAX), 0)),
        Mnemonic::Add if stores => immediate().map(|value| (Source::Added(value), 0)),
        Mnemonic::Sub if stores => {
            immediate().map(|value| (Source::Added(value.wrapping_neg()), 0))
        }
        _ => None,
    }
}

fn general(register: Register) -> Option<(u8, u8)> {
    let shift = match register {
        Register::AH | Register::BH | Register::CH | Register::DH => 8,
        _ => 0,
    };
    let whole = register.full_register();
    (register.is_gpr() && whole.is_gpr64()).then_some((whole.number() as u8, shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x40_1000;

    fn of(bytes: &[u8]) -> Option<Store> {
        let mut code = vec![0x90];
        code.extend_from_slice(bytes);
        code.push(0xc3);
        let function = FunctionCode {
            address: AT,
            size: code.len(),
            bytes: &code,
        };
        let end = AT + 1 + bytes.len() as u64;
        assert_eq!(store_before(&function, end - 1), None);
        assert_eq!(store_before(&function, AT + 1), None);
        store_before(&function, end)
    }

    fn plain(source: Source) -> Store {
        Store {
            source,
            shift: 0,
            width: 8,
            base: None,
            index: None,
            scale: 1,
            displacement: 0,
            is_elsewhere: false,
        }
    }

    #[test]
    fn moves_from_registers() {
        // mov %rsi,0x10(%rdi)
        let store = Store {
            base: Some(7),
            displacement: 0x10,
            ..plain(Source::Register(6))
        };
        assert_eq!(of(&[0x48, 0x89, 0x77, 0x10]), Some(store));
        // mov %r9d,-8(%r12,%r13,4)
        let store = Store {
            width: 4,
            base: Some(12),
            index: Some(13),
            scale: 4,
            displacement: -8i64 as u64,
            ..plain(Source::Register(9))
        };
        assert_eq!(of(&[0x47, 0x89, 0x4c, 0xac, 0xf8]), Some(store));
        // mov %ah,(%rdx)
        let store = Store {
            shift: 8,
            width: 1,
            base: Some(2),
            ..plain(Source::Register(0))
        };
        assert_eq!(of(&[0x88, 0x22]), Some(store));
        // mov %rax,0x100(%rip)
        let store = Store {
            displacement: AT + 8 + 0x100,
            ..plain(Source::Register(0))
        };
        assert_eq!(of(&[0x48, 0x89, 0x05, 0, 1, 0, 0]), Some(store));
        // mov %eax,%fs:0x10
        let store = Store {
            width: 4,
            displacement: 0x10,
            is_elsewhere: true,
            ..plain(Source::Register(0))
        };
        let bytes = [0x64, 0x89, 0x04, 0x25, 0x10, 0, 0, 0];
        assert_eq!(of(&bytes), Some(store));
    }

    #[test]
    fn moves_of_numbers() {
        // movq $-1,(%rbx)
        let store = Store {
            base: Some(3),
            ..plain(Source::Immediate(u64::MAX))
        };
        assert_eq!(of(&[0x48, 0xc7, 0x03, 0xff, 0xff, 0xff, 0xff]), Some(store));
        // movb $5,(%rbx)
        let store = Store {
            width: 1,
            base: Some(3),
            ..plain(Source::Immediate(5))
        };
        assert_eq!(of(&[0xc6, 0x03, 5]), Some(store));
    }

    #[test]
    fn exchanges() {
        // xchg %rax,(%rdi); lock xadd %rcx,(%rdi); lock cmpxchg %rdx,(%rdi)
        for (bytes, source) in [
            (&[0x48, 0x87, 0x07][..], Source::Exchanged(0)),
            (&[0xf0, 0x48, 0x0f, 0xc1, 0x0f], Source::Exchanged(1)),
            (&[0xf0, 0x48, 0x0f, 0xb1, 0x17], Source::Compared(2)),
        ] {
            let store = Store {
                base: Some(7),
                ..plain(source)
            };
            assert_eq!(of(bytes), Some(store), "{bytes:x?}");
        }
    }

    #[test]
    fn sums() {
        // incq (%rdi); lock decq (%rdi); addq $5,(%rdi); subq $5,(%rdi)
        for (bytes, added) in [
            (&[0x48, 0xff, 0x07][..], 1),
            (&[0xf0, 0x48, 0xff, 0x0f], u64::MAX),
            (&[0x48, 0x83, 0x07, 5], 5),
            (&[0x48, 0x83, 0x2f, 5], -5i64 as u64),
        ] {
            let store = Store {
                base: Some(7),
                ..plain(Source::Added(added))
            };
            assert_eq!(of(bytes), Some(store), "{bytes:x?}");
        }
    }

    #[test]
    fn loads() {
        // mov (%rdi),%rax; movzbl (%rdi),%ecx
        for (bytes, number, width) in [(&[0x48, 0x8b, 0x07][..], 0, 8), (&[0x0f, 0xb6, 0x0f], 1, 1)]
        {
            let store = Store {
                base: Some(7),
                width,
                ..plain(Source::Register(number))
            };
            assert_eq!(of(bytes), Some(store), "{bytes:x?}");
        }
    }

    #[test]
    fn accesses_whose_value_is_unknown() {
        for bytes in [
            &[0x48, 0x01, 0x07][..], // add %rax,(%rdi)
            &[0x0f, 0x11, 0x07],     // movups %xmm0,(%rdi)
            &[0x48, 0xab],           // stos
            &[0x67, 0x89, 0x07],     // mov %eax,(%edi)
        ] {
            assert_eq!(of(bytes), None, "{bytes:x?}");
        }
    }
}
