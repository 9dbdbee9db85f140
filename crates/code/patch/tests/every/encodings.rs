//! One encoding of each instruction that the decoder knows, with and without a memory operand. The operand's address is
//! %rdi, or %rdi plus the elements of vector register 1.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind};

pub struct Encoding {
    pub instruction: Instruction,
    pub bytes: Vec<u8>,
}

pub static ALL: LazyLock<Vec<Encoding>> = LazyLock::new(|| {
    let mut found = HashMap::new();
    vex_and_xop(&mut found);
    evex(&mut found);
    legacy(&mut found);
    let mut all: Vec<_> = found.into_iter().collect();
    all.sort_by_key(|(form, _)| (form.0 as u32, form.1));
    let encodings = all.into_iter();
    encodings.map(|(_, encoding)| encoding).collect()
});

pub fn missing() -> Vec<Code> {
    let there: HashSet<Code> = ALL.iter().map(|e| e.instruction.code()).collect();
    let decoded = |code: &Code| {
        let info = code.op_code();
        let is_known = info.intel_decoder64() && info.decoder_option() == DecoderOptions::NONE;
        // Instructions that begin with `wait` are decoded as two.
        info.is_instruction() && is_known && !info.fwait()
    };
    let wanted = Code::values().filter(decoded);
    wanted.filter(|code| !there.contains(code)).collect()
}

type EncodingMap = HashMap<(Code, bool), Encoding>;

const ORDER: [u8; 8] = [2, 0, 1, 3, 5, 6, 7, 4];

fn keep(found: &mut EncodingMap, head: &[u8], operands: &[u8]) -> bool {
    let bytes = [head, operands, &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
    let instruction = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return false;
    }
    let mut kinds = (0..instruction.op_count()).map(|op| instruction.op_kind(op));
    let form = (instruction.code(), kinds.any(|kind| kind == OpKind::Memory));
    found.entry(form).or_insert_with(|| Encoding {
        instruction,
        bytes: bytes[..instruction.len()].to_vec(),
    });
    true
}

fn with_operands(found: &mut EncodingMap, head: &[u8], others: &[u8], tail: &[u8]) {
    for reg in ORDER.map(|reg| reg << 3) {
        // Long displacements often make the instruction too long for a guarded jump, so the site moves past it.
        if !keep(found, head, &[&[0x87 | reg, 0, 0, 0, 0][..], tail].concat()) {
            // scale 1, index 1, base %rdi
            keep(
                found,
                head,
                &[&[0x84 | reg, 0x0f, 0, 0, 0, 0][..], tail].concat(),
            );
        }
        for rm in others {
            keep(found, head, &[&[0xc0 | reg | rm][..], tail].concat());
        }
    }
}

fn legacy(found: &mut EncodingMap) {
    const PREFIXES: [&[u8]; 10] = [
        &[],
        &[0x66],
        &[0xf2],
        &[0xf3],
        &[0x67],
        &[0x66, 0xf2],
        &[0x66, 0xf3],
        &[0x66, 0x67],
        &[0x67, 0xf2],
        &[0x67, 0xf3],
    ];
    let maps: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
    for (prefix, rex) in PREFIXES.iter().flat_map(|p| [(p, &[][..]), (p, &[0x48])]) {
        for opcode in 0..=0xff {
            for map in maps
                .iter()
                .filter(|map| !map.is_empty() || !leads_on(opcode))
            {
                let head = [prefix, rex, map, &[opcode]].concat();
                with_operands(found, &head, &ORDER, &[]);
            }
            // 3DNow! has its opcode last.
            with_operands(found, &[0x0f, 0x0f], &[3], &[opcode]);
        }
    }
}

fn leads_on(byte: u8) -> bool {
    let prefix =
        matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    prefix || matches!(byte, 0x0f | 0x62 | 0xc4 | 0xc5)
}

fn vex_and_xop(found: &mut EncodingMap) {
    let escapes = [(0xc4, 0..8), (0x8f, 8..11)];
    for (escape, map) in escapes
        .iter()
        .flat_map(|(e, maps)| maps.clone().map(move |m| (*e, m)))
    {
        for flags in (0..16).map(|bits: u8| (bits & 8) << 4 | bits & 7) {
            for opcode in 0..=0xff {
                // No third operand, or register 0.
                let head = [escape, 0xe0 | map, 0x78 | flags, opcode];
                with_operands(found, &head, &[3, 0, 1, 2, 5, 6, 7], &[]);
            }
        }
    }
}

fn evex(found: &mut EncodingMap) {
    for (map, width) in (1..8).flat_map(|map| [(map, 0), (map, 0x80)]) {
        for (prefix, length) in (0..4).flat_map(|p| (0..3).map(move |l| (p, l << 5))) {
            for opcode in 0..=0xff {
                // Without a mask, or with mask 1 if required.
                for mask in [0, 1] {
                    let middle = [0xf0 | map, width | 0x7c | prefix, 0x08 | length | mask];
                    let head = [&[0x62][..], &middle, &[opcode]].concat();
                    with_operands(found, &head, &[3], &[]);
                }
            }
        }
    }
}
