//! Damaged and malicious files must give an answer or an error soon.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use tiptoe_symbol::{Image, NoDebugFiles};

fn exercise(bytes: &[u8]) {
    let Ok(image) = Image::parse(&bytes.to_vec().into(), &NoDebugFiles) else {
        return;
    };
    for spec in ["main", "ns::f(int)", "*a*", "0x1000", "*"] {
        let _ = image.find(spec).map(|found| found.len());
    }
    let step = image.functions().len() / 16 + 1;
    for function in image.functions().iter().step_by(step) {
        assert!((function.offset_in_file as usize) < bytes.len());
        let _ = image.function_containing(function.address.wrapping_add(1));
        let _ = image.next_function_after(function.address);
        let _ = function.display_name();
    }
}

fn victim() -> Vec<u8> {
    let found = [
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/bin/memcached",
        "/proc/self/exe",
    ];
    found
        .iter()
        .find_map(|path| std::fs::read(path).ok())
        .unwrap_or_default()
}

fn header_fields() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bytes_changed_anywhere(changes in header_fields()) {
        let mut bytes = victim();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exercise(&bytes);
    }

    #[test]
    fn headers_changed(changes in header_fields(), at_end in any::<bool>()) {
        let mut bytes = victim();
        let window = bytes.len().min(2048);
        let start = if at_end { bytes.len() - window } else { 16 };
        for (at, value) in changes {
            let at = start + at.index(window - 16);
            bytes[at] = value;
        }
        exercise(&bytes);
    }

    #[test]
    fn files_cut_short(at in any::<prop::sample::Index>()) {
        let bytes = victim();
        exercise(&bytes[..at.index(bytes.len())]);
    }

    #[test]
    fn nonsense_after_a_good_start(tail in prop::collection::vec(any::<u8>(), 0..4096)) {
        let mut bytes = victim();
        bytes.truncate(64);
        bytes.extend(tail);
        exercise(&bytes);
    }

    #[test]
    fn any_specification(spec in "\\PC{0,60}") {
        if let Ok(image) = Image::parse(&victim().into(), &NoDebugFiles) {
            let _ = image.find(&spec).map(|found| found.len());
        }
    }
}

fn many_symbols_one_name(count: usize, name_length: usize) -> Vec<u8> {
    let mut file = vec![0_u8; 64 + 56];
    file[..4].copy_from_slice(b"\x7fELF");
    file[4..7].copy_from_slice(&[2, 1, 1]);
    put(&mut file, 16, &[3, 0, 62, 0, 1, 0, 0, 0]);
    put(&mut file, 32, &64_u64.to_le_bytes());
    put(&mut file, 52, &[64, 0, 56, 0, 1, 0, 64, 0, 3, 0, 1, 0]);
    // One executable segment over the whole file.
    put(&mut file, 64, &[1, 0, 0, 0, 5, 0, 0, 0]);
    let strings = file.len();
    file.extend(std::iter::repeat_n(b'a', name_length));
    file.push(0);
    file.resize(file.len().next_multiple_of(8), 0);
    let symbols = file.len();
    for at in 0..count as u64 {
        let mut symbol = [0_u8; 24];
        put(
            &mut symbol,
            0,
            &((at % name_length as u64) as u32).to_le_bytes(),
        );
        put(&mut symbol, 4, &[0x12, 0, 1, 0]);
        put(&mut symbol, 8, &(at % 4096).to_le_bytes());
        file.extend(symbol);
    }
    let sections = file.len();
    file.resize(sections + 3 * 64, 0);
    let section = |file: &mut [u8], at: usize, kind: u32, start: usize, size: usize, link: u32| {
        let base = sections + at * 64;
        put(file, base + 4, &kind.to_le_bytes());
        put(file, base + 24, &(start as u64).to_le_bytes());
        put(file, base + 32, &(size as u64).to_le_bytes());
        put(file, base + 40, &link.to_le_bytes());
        put(file, base + 56, &24_u64.to_le_bytes());
    };
    section(&mut file, 1, 3, strings, name_length + 1, 0);
    section(&mut file, 2, 2, symbols, count * 24, 1);
    let size = (file.len() as u64).to_le_bytes();
    put(&mut file, 40, &(sections as u64).to_le_bytes());
    put(&mut file, 64 + 32, &size);
    put(&mut file, 64 + 40, &size);
    file
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Many symbols share one long name. The time must be proportional to the file's length, not to the number of symbols
/// times the name's length.
#[test]
fn overlapping_names_have_a_budget() {
    let bytes = many_symbols_one_name(50_000, 1 << 20);
    let length = bytes.len();
    let image = Image::parse(&bytes.into(), &NoDebugFiles).unwrap();
    let kept: usize = image
        .functions()
        .iter()
        .flat_map(|f| &f.names)
        .map(|name| name.len())
        .sum();
    println!(
        "{} functions, {kept} bytes of names",
        image.functions().len()
    );
    assert_eq!(image.functions().len(), 4096);
    assert!(kept <= 4 * length);
}

#[test]
#[ignore = "nightly: asserts a time"]
fn overlapping_names_are_read_soon() {
    let start = Instant::now();
    overlapping_names_have_a_budget();
    assert!(start.elapsed() < Duration::from_secs(20));
}
