//! Finds origins of instructions in the file or a separate debug file, damaged or not.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Disk, image, tool};
use tempfile::TempDir;
use tiptoe_symbol::{BudgetExceeded, Image, Origin};

const PROGRAM: &str = "\
volatile int sink;
static inline __attribute__((always_inline)) void inner(int x) { sink = x; }
static inline __attribute__((always_inline)) void middle(int x) { inner(x + 1); }
extern \"C\" __attribute__((noinline)) void outer(int x) { middle(x); sink = 0; }
int main() { outer(1); return 0; }
";

fn build(folder: &TempDir, options: &[&str]) -> Option<PathBuf> {
    let path = |name: &str| folder.path().join(name).to_str().map(str::to_owned);
    let (source, program) = (path("prog.cc")?, path("prog")?);
    fs::write(&source, PROGRAM).expect("a file");
    let all = [options, &["-O2", "-o", &program, &source]].concat();
    tool("g++", &all)?;
    Some(program.into())
}

fn origins(path: &Path, bytes: &[u8], function: &str) -> Vec<Origin> {
    let all = lookups(path, bytes, function).into_iter();
    all.map(|origin| origin.expect("an honest file")).collect()
}

fn lookups(path: &Path, bytes: &[u8], function: &str) -> Vec<Result<Origin, BudgetExceeded>> {
    let source = Disk::of(path);
    let content = bytes.to_vec().into();
    let Ok(image) = Image::parse(&content, &source) else {
        return Vec::new();
    };
    let mut functions = image.functions().iter();
    let found = functions.find(|f| f.names.iter().any(|name| &**name == function));
    let Some(found) = found else {
        return Vec::new();
    };
    image.origins(&content, &source, |origins| {
        (found.address..found.end())
            .map(|at| origins.of(at))
            .collect()
    })
}

fn check(path: &Path) {
    assert!(image(path).is_some());
    let bytes = fs::read(path).expect("a file");
    let all = origins(path, &bytes, "outer");
    let line = |line| Some(("prog.cc".to_owned(), line));
    let inlined = Origin {
        inlined: vec!["inner".into(), "middle".into()],
        line: line(2),
    };
    let own = Origin {
        inlined: Vec::new(),
        line: line(4),
    };
    assert!(all.contains(&inlined) && all.contains(&own), "{all:#?}");
}

#[test]
fn functions_within_functions() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for packed in ["-gz=none", "-gz=zlib"] {
            let folder = TempDir::new().expect("a folder");
            if let Some(path) = build(&folder, &[version, packed]) {
                check(&path);
            }
        }
    }
}

#[test]
fn debug_information_of_its_own() {
    let folder = TempDir::new().expect("a folder");
    let Some(path) = build(&folder, &["-g"]) else {
        return;
    };
    let program = path.to_str().expect("a path");
    let debug = format!("{program}.debug");
    let link = format!("--add-gnu-debuglink={debug}");
    tool("objcopy", &["--only-keep-debug", program, &debug]).expect("objcopy is there");
    tool("objcopy", &["--strip-debug", &link, program]).expect("objcopy is there");
    check(&path);
    fs::remove_file(debug).expect("it is there");
    let bytes = fs::read(&path).expect("a file");
    let all = origins(&path, &bytes, "outer");
    assert!(!all.is_empty() && all.iter().all(|origin| *origin == Origin::default()));
}

#[test]
fn damage_is_survived() {
    let folder = TempDir::new().expect("a folder");
    let Some(path) = build(&folder, &["-g"]) else {
        return;
    };
    let whole = fs::read(&path).expect("a file");
    let mut random = 12345_u64;
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..40 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = (random >> 33) as usize % bytes.len();
            bytes[at.max(64)] = (random >> 20) as u8;
        }
        lookups(&path, &bytes, "outer");
    }
}

/// One function, with the abbreviations 1 (unit), 2 (function, with children), 3 (inlined function, with children)
/// and 4 (function with ranges).
const HOSTILE: &str = "\
        .text
        .globl outer
        .type outer, @function
outer:  ret
        .size outer, . - outer
end:
        .section .debug_abbrev, \"\", @progbits
        .byte 1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0
        .byte 2, 0x2e, 1, 0x11, 1, 0x12, 7, 0, 0
        .byte 3, 0x1d, 1, 0, 0
        .byte 4, 0x2e, 0, 0x55, 0x17, 0, 0
        .byte 0
        .section .debug_info, \"\", @progbits
        .long last - first
first:  .short 4
        .long 0
        .byte 8
        .byte 1
        .quad outer, end - outer
";

fn check_hostile(entries: &str) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("hostile.so");
    let source = folder.path().join("hostile.s");
    fs::write(&source, format!("{HOSTILE}{entries}\n")).expect("a file");
    let [program, source] = [&path, &source].map(|path| path.to_str().expect("a path"));
    if tool("gcc", &["-shared", "-nostdlib", "-o", program, source]).is_none() {
        return;
    }
    let bytes = fs::read(&path).expect("a file");
    assert_eq!(lookups(&path, &bytes, "outer"), [Err(BudgetExceeded)]);
}

#[test]
fn functions_inlined_in_each_other_overflowed_the_stack() {
    check_hostile(
        "\
        .byte 2
        .quad outer, end - outer
        .fill 1000000, 1, 3
        .fill 1000002, 1, 0
last:",
    );
}

#[test]
fn a_list_of_ranges_that_all_functions_share_was_kept_for_each() {
    check_hostile(
        "\
        .rept 30000
        .byte 4
        .long 0
        .endr
        .byte 0
last:
        .section .debug_ranges, \"\", @progbits
        .rept 30000
        .quad 16, 32
        .endr
        .quad 0, 0",
    );
}

#[test]
fn places_where_a_function_is_inlined_are_counted() {
    const PARTLY: &str = "\
volatile int sink;
extern \"C\" int partly(int x);
static inline __attribute__((always_inline)) int body(int x) { sink = x; return x + 1; }
extern \"C\" int partly(int x) { return body(x); }
extern \"C\" __attribute__((noinline)) int one(int n) { return partly(n) + 1; }
extern \"C\" __attribute__((noinline)) int two(int n) { return partly(n) ^ 5; }
extern \"C\" __attribute__((noinline)) int never(int n) { sink = n; return n; }
int main(int n, char **) {
    int (*volatile f)(int) = partly;
    return one(n) + two(n) + never(n) + f(n);
}
";
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let folder = TempDir::new().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (source, program) = (path("partly.cc"), path("partly"));
        fs::write(&source, PARTLY).expect("a file");
        if tool("g++", &["-O2", version, "-o", &program, &source]).is_none() {
            return;
        }
        let content = fs::read(&program).expect("a file").into();
        let source = Disk::of(&program);
        let image = Image::parse(&content, &source).expect("ELF");
        let places = image.inlined_places(&content, &source).unwrap();
        let of = |name: &str| places.get(&image.find(name).expect(name)[0].address);
        let partly = of("partly").expect("places");
        let mut within: Vec<_> = partly
            .within
            .iter()
            .filter_map(|at| Some(image.function_containing(*at)?.display_name()))
            .collect();
        within.sort();
        assert_eq!(
            (partly.count, &within[..]),
            (2, &["one".into(), "two".into()][..])
        );
        assert_eq!(of("never"), None, "{places:?}");
        let everywhere = |name| image.inlined_everywhere(name, &content, &source).unwrap();
        let body = everywhere("body").expect("places");
        assert_eq!(body.count, 3, "{body:?}");
        for name in ["partly", "never", "absent"] {
            assert_eq!(everywhere(name), None, "{name}");
        }
    }
}
