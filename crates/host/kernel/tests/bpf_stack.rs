//! Programs at uprobes must use less than 64 bytes of stack; otherwise a kernel from Linux 6.13 on may panic.

use std::path::Path;

use object::{Object, ObjectSection, SectionKind};

#[path = "../../../../tests/support/bpf_stack.rs"]
mod bpf_stack;

use bpf_stack::stack_bytes;

/// Sections of programs at uprobes, or at events that users name, which may be uprobes.
const AT_UPROBES: [&str; 5] = ["uprobe", "uretprobe", "usdt", "kprobe", "tracepoint"];
/// Sections with this prefix name a tracepoint, which is no uprobe.
const NAMED: &str = "tracepoint/";
const MOST: i32 = 64;

/// Returns each program's section and stack use, including that of called functions.
fn programs(object: &Path) -> Vec<(String, i32)> {
    let bytes = std::fs::read(object).expect("an object");
    let file = object::File::parse(&*bytes).expect("ELF");
    let mut all: Vec<(String, i32)> = Vec::new();
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let (words, _) = section.data().expect("its bytes").as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let name = section.name().expect("its name").to_owned();
        all.push((name, stack_bytes(&words)));
    }
    let called = all
        .iter()
        .find(|(name, _)| name == ".text")
        .map_or(0, |(_, bytes)| *bytes);
    all.retain(|(name, _)| name != ".text");
    all.iter_mut().for_each(|(_, bytes)| *bytes += called);
    all
}

#[test]
fn programs_at_uprobes_keep_their_stack_below_what_a_kernel_panics_at() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("the objects") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|end| end != "o") {
            continue;
        }
        for (name, bytes) in programs(&path) {
            seen += 1;
            let kind = name.split('/').next().unwrap_or_default();
            let kind = kind.split('.').next().unwrap_or_default();
            let is_there = AT_UPROBES.contains(&kind) && !name.starts_with(NAMED);
            assert!(
                !is_there || bytes < MOST,
                "{}: {name} uses {bytes} bytes",
                path.display()
            );
        }
    }
    assert!(seen > 20, "{seen} programs");
}

#[test]
fn the_use_of_the_stack_is_read_from_the_instructions() {
    let op = |code: u64, to: u64, from: u64, offset: i16, value: i32| {
        let offset = u64::from(offset.cast_unsigned()) << 16;
        code | (to | from << 4) << 8 | offset | u64::from(value.cast_unsigned()) << 32
    };
    for (program, bytes) in [
        (vec![op(0x95, 0, 0, 0, 0)], 0),
        (vec![op(0x7b, 10, 1, -8, 0)], 8),
        (vec![op(0x79, 1, 10, -24, 0)], 24),
        (vec![op(0xbf, 2, 10, 0, 0), op(0x07, 2, 0, 0, -72)], 72),
        (
            vec![
                op(0xbf, 2, 10, 0, 0),
                op(0x07, 2, 0, 0, -8),
                op(0x7b, 2, 1, -8, 0),
            ],
            16,
        ),
        (
            vec![
                op(0x18, 2, 0, 0, 0),
                op(0x7b, 10, 1, -99, 0),
                op(0x7b, 2, 1, -99, 0),
            ],
            0,
        ),
    ] {
        assert_eq!(stack_bytes(&program), bytes, "{program:x?}");
    }
}
