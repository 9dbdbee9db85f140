//! The memory of `tiptoe watch` for large debug information.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tiptoe_tests::{Report, command, symbol_value, target};

use crate::bounds::{Folder, measured};
use crate::watch::turn;

/// tiptoe may use 30 MB, and half a byte for each byte of debug information.
const MOST_BESIDES: f64 = 30e6;
const MOST_PER_BYTE: f64 = 0.5;

/// The sections' shares, as in C++ programs. `OTHERS` are lists of locations and ranges, which a watch never reads.
const INFO: f64 = 0.44;
const STRINGS: f64 = 0.28;
const LINES: f64 = 0.12;
const OTHERS: f64 = 0.15;
const UNIT: usize = 200_000;
/// A unit has fewer than 128 kinds of entries, so that each fits one LEB128 byte.
const KINDS: u8 = 120;
const ENTRY: usize = 16;
const STRING: usize = 48;

/// Strings other than these names are filler.
const NAMES: [&str; 5] = ["large", "large_t", "hits", "long", "unit.cc"];

fn string_number(name: &str) -> usize {
    let found = NAMES.iter().position(|known| *known == name);
    found.expect("it is listed")
}

fn name(number: usize) -> [u8; 4] {
    ((number * STRING) as u32).to_le_bytes()
}

fn abbreviations() -> Vec<u8> {
    let [strp, addr, data1, data2, data8, ref4, offset, expression] =
        [0x0e, 0x01, 0x0b, 0x05, 0x07, 0x13, 0x17, 0x18];
    let [name, size, of_type, line, sibling] = [0x03, 0x0b, 0x49, 0x3b, 0x01];
    let mut all = vec![
        1, 0x11, 1, name, strp, 0x10, offset, 0x11, addr, 0x12, data8, 0, 0,
    ];
    for kind in 2..2 + KINDS {
        let attributes = [
            name, strp, size, data1, line, data2, sibling, ref4, of_type, ref4,
        ];
        all.extend([kind, 0x13, 0]);
        all.extend(attributes);
        all.extend([0, 0]);
    }
    let last = 2 + KINDS;
    all.extend([last, 0x13, 1, name, strp, size, data1, 0, 0]);
    all.extend([
        last + 1,
        0x0d,
        0,
        name,
        strp,
        of_type,
        ref4,
        0x38,
        data1,
        0,
        0,
    ]);
    all.extend([
        last + 2,
        0x24,
        0,
        name,
        strp,
        size,
        data1,
        0x3e,
        data1,
        0,
        0,
    ]);
    all.extend([
        last + 3,
        0x34,
        0,
        name,
        strp,
        of_type,
        ref4,
        0x02,
        expression,
        0,
        0,
    ]);
    all.push(0);
    all
}

fn unit(abbreviations: usize, lines: usize, code: [u64; 2], entries: &[u8]) -> Vec<u8> {
    let mut unit = vec![0; 4];
    unit.extend(4u16.to_le_bytes());
    unit.extend((abbreviations as u32).to_le_bytes());
    unit.push(8);
    unit.push(1);
    unit.extend(name(string_number("unit.cc")));
    unit.extend((lines as u32).to_le_bytes());
    unit.extend(code.map(u64::to_le_bytes).as_flattened());
    unit.extend(entries);
    unit.push(0);
    let len = unit.len() as u32 - 4;
    unit[..4].copy_from_slice(&len.to_le_bytes());
    unit
}

const ENTRIES: u32 = 11 + 1 + 4 + 4 + 16;

fn variable(address: u64) -> Vec<u8> {
    let last = 2 + KINDS;
    let (of_struct, of_long) = (ENTRIES, ENTRIES + 6 + 10 + 1);
    let mut entries = vec![last];
    entries.extend(name(string_number("large_t")));
    entries.extend([8, last + 1]);
    entries.extend(name(string_number("hits")));
    entries.extend(of_long.to_le_bytes());
    entries.extend([0, 0, last + 2]);
    entries.extend(name(string_number("long")));
    entries.extend([8, 5, last + 3]);
    entries.extend(name(string_number("large")));
    entries.extend(of_struct.to_le_bytes());
    entries.extend([9, 3]);
    entries.extend(address.to_le_bytes());
    entries
}

fn lines(len: usize) -> Vec<u8> {
    let mut header = vec![
        1, 1, 1, -5i8 as u8, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1,
    ];
    header.extend(b"folder\0\0");
    for file in 0..40 {
        header.extend(format!("file_{file}.h\0\x01\0\0").bytes());
    }
    header.push(0);
    let mut lines = vec![0; 4];
    lines.extend(4u16.to_le_bytes());
    lines.extend((header.len() as u32).to_le_bytes());
    lines.extend(header);
    // Each byte adds a row.
    lines.resize(len, 1);
    let len = lines.len() as u32 - 4;
    lines[..4].copy_from_slice(&len.to_le_bytes());
    lines
}

fn write_sections(folder: &Path, total: usize, variable_at: u64) -> std::io::Result<()> {
    let file = |name: &str| File::create(folder.join(name)).map(BufWriter::new);
    let part = |share: f64| (total as f64 * share) as usize;
    let kinds = abbreviations();
    let units = total / UNIT;
    let strings = part(STRINGS) / STRING;
    let of_lines = part(LINES) / units;
    let [mut info, mut abbrev, mut line] = ["info", "abbrev", "line"].map(file);
    let entries = part(INFO) / units / ENTRY;
    let mut bytes = Vec::new();
    for number in 0..units {
        bytes.clear();
        for entry in 0..entries {
            bytes.push(2 + (entry % usize::from(KINDS)) as u8);
            bytes.extend(name(
                NAMES.len() + (number * entries + entry) % (strings - NAMES.len()),
            ));
            bytes.extend([8, 1, 0]);
            bytes.extend([ENTRIES; 2].map(u32::to_le_bytes).as_flattened());
        }
        let code = [(1 << 40) + number as u64 * 4096, 4096];
        let unit = unit(number * kinds.len(), number * of_lines, code, &bytes);
        info.as_mut().expect("a file").write_all(&unit)?;
        abbrev.as_mut().expect("a file").write_all(&kinds)?;
        line.as_mut().expect("a file").write_all(&lines(of_lines))?;
    }
    let last = unit(0, 0, [0, 1 << 30], &variable(variable_at));
    info?.write_all(&last)?;
    let mut text = file("str")?;
    for number in 0..strings {
        let name = NAMES.get(number).map(|name| (*name).to_owned());
        let made_up = || format!("a_namespace::a_class_with_a_name_{number:08x}");
        let mut string = name.unwrap_or_else(made_up).into_bytes();
        string.resize(STRING, 0);
        text.write_all(&string)?;
    }
    file("loc")?.write_all(&vec![1; part(OTHERS) / 2])?;
    file("ranges")?.write_all(&vec![1; part(OTHERS) / 2])
}

fn program(folder: &Folder, total: usize) -> PathBuf {
    let address = symbol_value(&target("hot"), "calls");
    write_sections(folder.path(), total, address).expect("sections");
    let program = folder.path().join("hot");
    let mut objcopy = Command::new("objcopy");
    objcopy.arg("--strip-debug");
    for section in ["info", "abbrev", "line", "str", "loc", "ranges"] {
        let file = folder.path().join(section);
        objcopy.arg(format!("--add-section=.debug_{section}={}", file.display()));
    }
    objcopy.arg(target("hot")).arg(&program);
    assert!(objcopy.status().expect("objcopy").success());
    for section in ["info", "abbrev", "line", "str", "loc", "ranges"] {
        fs::remove_file(folder.path().join(section)).expect("it was written");
    }
    program
}

fn check(total: usize) {
    let Some(_turn) = turn() else { return };
    let folder = Folder::new("large");
    let (program, report) = (program(&folder, total), folder.path().join("report"));
    let mut watch = command();
    watch
        .args(["watch", "large.hits", "--json", "-o"])
        .arg(&report);
    watch.arg("--").arg(&program).args(["1", "10"]);
    let watch = watch.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let (said, status, used) = measured(watch.expect("tiptoe runs"));
    assert_eq!(status, 0, "{said}");
    let memory = used.ru_maxrss * 1024;
    let report = Report::parse(&fs::read_to_string(report).expect("a report"));
    assert!(
        !crate::watch::rows(&report).is_empty(),
        "{:#}",
        report.value
    );
    let most = MOST_BESIDES + MOST_PER_BYTE * total as f64;
    println!("{memory} bytes for {total}, at most {most}");
    assert!((memory as f64) < most, "{memory} bytes of {most}: {said}");
}

#[test]
fn a_watch_reads_what_it_needs_of_large_debug_information() {
    check(100_000_000);
}

#[test]
#[ignore = "nightly: builds 500 MB of debug information"]
fn a_watch_takes_less_than_300_mb_for_500_mb_of_debug_information() {
    check(500_000_000);
}
