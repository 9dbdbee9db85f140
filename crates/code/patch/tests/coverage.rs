//! Plans patches for every function of real programs. Nearly all take a jump.

#[path = "../../../../tests/support/skipped.rs"]
mod skipped;
mod traps;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::{Object, ObjectKind, ObjectSection};
use skipped::skipped;
use tiptoe_patch::{
    Abi, Body, FunctionCode, Hits, Padding, Patch, Planner, Refusal, Shape, Space, Strategy,
    padding, shape, syscall_sites,
};
use tiptoe_wire::AgentAddresses;
use traps::traps_at;

const PROGRAMS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/bin/python3",
    "/usr/bin/redis-server",
    "/usr/bin/sqlite3",
];

const LOADED: u64 = 0x7f12_3400_0000;
const GIB: u64 = 1 << 30;

struct Program {
    image: Range<u64>,
    sections: Vec<(u64, Vec<u8>)>,
    functions: Vec<(u64, usize)>,
}

impl Program {
    fn read(path: &str) -> Option<Program> {
        let data = std::fs::read(path).ok()?;
        let file = object::File::parse(&*data).expect("an ELF file");
        let bias = if file.kind() == ObjectKind::Executable {
            0
        } else {
            LOADED
        };
        let code = file
            .sections()
            .filter(|s| s.name().is_ok_and(|n| n == ".text"));
        let sections: Vec<_> = code
            .map(|s| (s.address() + bias, s.data().expect("readable").to_vec()))
            .collect();
        let mut functions = fdes(&file, bias);
        functions.retain(|f| {
            sections
                .iter()
                .any(|s| (s.0..s.0 + s.1.len() as u64).contains(&f.0))
        });
        functions.sort_unstable();
        functions.dedup_by_key(|f| f.0);
        let ends = file.sections().map(|s| s.address() + s.size() + bias);
        let image = bias..ends.max().expect("has sections");
        Some(Program {
            image,
            sections,
            functions,
        })
    }

    fn function(&self, index: usize) -> FunctionCode<'_> {
        let (address, size) = self.functions[index];
        let (start, bytes) = self
            .sections
            .iter()
            .find(|s| address - s.0 < s.1.len() as u64)
            .expect("retained");
        let end = start + bytes.len() as u64;
        let next = self.functions.get(index + 1).map_or(end, |f| f.0.min(end));
        let bytes = &bytes[(address - start) as usize..(next - start) as usize];
        FunctionCode {
            address,
            bytes,
            size: size.min(bytes.len()),
        }
    }

    fn space(&self) -> Space {
        let (start, end) = (self.image.start, (self.image.end + 0xffff) & !0xffff);
        let below = start.saturating_sub(2 * GIB + (GIB / 2))..start.saturating_sub(1 << 20);
        let above = end + GIB..end + 2 * GIB;
        let heap = end..end + GIB;
        Space {
            preferred: vec![below, above],
            last_resort: vec![heap],
            ..Space::default()
        }
    }
}

fn fdes(file: &object::File, bias: u64) -> Vec<(u64, usize)> {
    let section = file.section_by_name(".eh_frame").expect("has .eh_frame");
    let data = section.uncompressed_data().expect("readable");
    let frames = EhFrame::new(&data, LittleEndian);
    let text = file.section_by_name(".text").map_or(0, |s| s.address());
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address())
        .set_text(text);
    let mut entries = frames.entries(&bases);
    let mut found = Vec::new();
    while let Some(entry) = entries.next().expect("well formed") {
        if let CieOrFde::Fde(partial) = entry {
            let fde = partial
                .parse(EhFrame::cie_from_offset)
                .expect("well formed");
            found.push((fde.initial_address() + bias, fde.len() as usize));
        }
    }
    found
}

fn planner(space: Space) -> Planner {
    Planner::new(
        Abi {
            tls: -8,
            frames: -16,
            agent: AgentAddresses {
                cold_entry: LOADED,
                hook_entry: LOADED,
                slow_entry: LOADED,
                time_entry: LOADED,
                futex_entry: LOADED,
                gate: 0,
                thunks: 0,
            },
        },
        space,
    )
}

fn check(shape: &Shape, patch: &Patch) {
    let jump = |from: u64, bytes: &[u8]| {
        let field = i32::from_le_bytes(bytes[1..5].try_into().expect("five bytes"));
        from.wrapping_add_signed(5 + i64::from(field))
    };
    match (patch.strategy, &patch.island) {
        (Strategy::Jump, None) => assert_eq!(jump(patch.site, &patch.patched), patch.trampoline),
        (Strategy::Short, Some(island)) => {
            let hop = i64::from(patch.patched[1] as i8);
            assert_eq!(patch.site.wrapping_add_signed(2 + hop), island.address);
            assert_eq!(jump(island.address, &island.patched), patch.trampoline);
        }
        (Strategy::Trap, None) => assert_eq!(patch.patched[0], 0xcc),
        other => panic!("{other:?}"),
    }
    assert_eq!(patch.site, shape.site());
    assert_eq!(patch.heads[0].offset, 0);
    // If the opcode stays, only one byte of the target may change, so that no thread sees a mix.
    if patch.len == 5 && patch.patched[0] == patch.original[0] {
        assert_eq!(patch.patched[1..4], patch.original[1..4]);
    }
    for head in &patch.heads[1..] {
        assert!(head.offset < patch.len && usize::from(head.resume) < patch.code.len());
        // A guard may be an invalid operand of the first instruction.
        let operand = head.resume == patch.copy && patch.needs_sigill;
        assert!(operand || traps_at(patch, head.offset));
    }
}

#[derive(Default)]
struct Tally {
    strategies: [usize; 3],
    sigill: usize,
    refusals: BTreeMap<String, usize>,
}

impl Tally {
    fn add(&mut self, result: &Result<Patch, Refusal>) {
        match result {
            Ok(patch) => {
                self.strategies[patch.strategy as usize] += 1;
                self.sigill += usize::from(patch.needs_sigill);
            }
            Err(refusal) => *self.refusals.entry(kind(refusal)).or_default() += 1,
        }
    }

    fn share(&self) -> f64 {
        let refused: usize = self.refusals.values().sum();
        let all = self.strategies.iter().sum::<usize>() + refused;
        100.0 * (self.strategies[0] + self.strategies[1]) as f64 / all as f64
    }
}

fn kind(refusal: &Refusal) -> String {
    let text = refusal.to_string();
    let words = text
        .split(' ')
        .map(|w| if w.starts_with("0x") { "…" } else { w });
    words.collect::<Vec<_>>().join(" ")
}

fn near(paddings: &[Padding], site: u64) -> &[Padding] {
    let first = paddings.partition_point(|p| p.address + 256 < site);
    let last = paddings.partition_point(|p| p.address < site + 160);
    &paddings[first..last.max(first)]
}

#[test]
fn nearly_every_function_takes_a_jump() {
    for path in PROGRAMS {
        let Some(program) = Program::read(path) else {
            skipped(path, "it is not there");
            continue;
        };
        let count = program.functions.len();
        let started = Instant::now();
        let shapes: Vec<_> = (0..count).map(|i| shape(&program.function(i), 0)).collect();
        let shaped = started.elapsed();
        let paddings: Vec<_> = (0..count)
            .filter_map(|i| padding(&program.function(i)))
            .collect();
        let started = Instant::now();
        let mut planner = planner(program.space());
        let mut tally = Tally::default();
        for (slot, shape) in shapes.iter().enumerate() {
            let body = Body::Count {
                slot: slot as u32,
                hits: Hits::default(),
            };
            let placed = shape
                .as_ref()
                .map_err(|&refusal| refusal)
                .and_then(|shape| {
                    let patch =
                        planner.plan(shape, &body, || near(&paddings, shape.site()).to_vec())?;
                    check(shape, &patch);
                    Ok(patch)
                });
            tally.add(&placed);
        }
        let planned = started.elapsed();
        let [jump, short, trap] = tally.strategies;
        println!(
            "{path}: {:.2}% of {count} functions without a trap",
            tally.share()
        );
        println!(
            "    jump {jump}, short {short}, trap {trap}; SIGILL bytes in {}",
            tally.sigill
        );
        println!("    refused {:?}", tally.refusals);
        let arenas = planner.new_arenas().len();
        println!("    {arenas} arenas; shaped in {shaped:?}, planned in {planned:?}");
        assert!(tally.share() >= 95.0, "{path}");
    }
}

#[test]
fn every_instruction_is_patched_or_refused() {
    let Some(program) = Program::read(PROGRAMS[0]) else {
        return skipped(PROGRAMS[0], "it is not there");
    };
    let mut tally = Tally::default();
    for index in (0..program.functions.len()).step_by(7) {
        let function = program.function(index);
        for offset in (1..function.size.min(256)).step_by(3) {
            let mut planner = planner(program.space());
            let body = Body::Count {
                slot: 0,
                hits: Hits::default(),
            };
            let Ok(shape) = shape(&function, offset) else {
                continue;
            };
            let placed = planner.plan(&shape, &body, Vec::new);
            placed.iter().for_each(|patch| check(&shape, patch));
            tally.add(&placed);
        }
    }
    println!(
        "libc offsets: {:.2}% without a trap; {:?}",
        tally.share(),
        tally.refusals
    );
}

#[test]
fn the_c_library_waits_and_wakes_at_known_sites() {
    let Some(program) = Program::read(PROGRAMS[0]) else {
        return skipped(PROGRAMS[0], "it is not there");
    };
    let mut planner = planner(program.space());
    let mut found = BTreeMap::new();
    for index in 0..program.functions.len() {
        for site in syscall_sites(&program.function(index), &[9, 11, 13, 25, 56, 202, 435]) {
            *found.entry(site.nr).or_insert(0) += 1;
            let body = Body::Syscall {
                nr: site.nr,
                recall: Some(0),
            };
            let patch = planner.plan(&site.shape, &body, Vec::new).expect("room");
            assert_eq!(patch.strategy, Strategy::Jump);
        }
    }
    println!("system call sites of libc by number: {found:?}");
    assert!(found.get(&202).is_some_and(|&n| n >= 10), "futex");
}
