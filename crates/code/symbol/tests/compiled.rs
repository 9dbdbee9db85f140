//! Finds functions in programs compiled here, with names mangled, stripped, separate or packed.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{image, tool};
use tempfile::TempDir;
use tiptoe_symbol::{Class, Error, Image, Kind, Machine, NoDebugFiles, Source};

const CPP: &str = r#"
#include <stdexcept>
namespace ns {
int counter;
__attribute__((noinline)) int f(int x) { return x + counter; }
__attribute__((noinline)) int f(char const *x) { return *x + counter; }
template <class T> __attribute__((noinline)) T twice(T x) { return x + x + counter; }
struct Box {
    int held;
    __attribute__((noinline)) explicit Box(int x) : held(x + counter) {}
    __attribute__((noinline)) int operator*() const { return held; }
};
}
extern "C" {
int plain(int x) { return x * 3; }
int other(int x) __attribute__((alias("plain")));
static int chosen_impl(int x) { return x + 7; }
static int (*choose(void))(int) { return chosen_impl; }
int chosen(int x) __attribute__((ifunc("choose")));
}
__attribute__((noinline)) static int local(int x) { return x ^ ns::counter; }
__attribute__((noinline)) int splits(int x) {
    int first = local(x);
    if (__builtin_expect(local(first) == 12345, 0)) throw std::runtime_error("cold");
    return first;
}
int main(int argc, char **argv) {
    ns::Box box(argc);
    return ns::f(argc) + ns::f(argv[0]) + ns::twice(argc) + *box + plain(argc) + chosen(argc)
        + splits(argc);
}
"#;

struct Program {
    folder: TempDir,
    path: PathBuf,
}

impl Program {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn objcopy(&self, options: &[&str], from: &Path, to: &str) -> Option<PathBuf> {
        let path = self.path(to);
        let files = [from.to_str().unwrap(), path.to_str().unwrap()];
        tool("objcopy", &[options, &files].concat())?;
        Some(path)
    }
}

fn compile(compiler: &str, name: &str, source: &str, options: &[&str]) -> Option<Program> {
    let folder = TempDir::new().unwrap();
    let (from, path) = (folder.path().join(name), folder.path().join("prog"));
    fs::write(&from, source).unwrap();
    let files = [from.to_str().unwrap(), "-o", path.to_str().unwrap()];
    tool(compiler, &[options, &files].concat())?;
    Some(Program { folder, path })
}

fn cpp() -> Option<Program> {
    compile("g++", "prog.cpp", CPP, &["-O2", "-Wl,--build-id"])
}

fn count(image: &Image, spec: &str) -> usize {
    image.find(spec).map_or(0, |found| found.len())
}

#[test]
fn cpp_names() {
    let Some(program) = cpp() else { return };
    let image = image(&program.path).unwrap();
    for (spec, wanted) in [
        ("ns::f", 2),
        ("ns::f(int)", 1),
        ("ns::f(char const *)", 1),
        ("_ZN2ns1fEi", 1),
        ("ns::twice", 1),
        ("ns::twice<int>", 1),
        ("ns::twice<int>(int)", 1),
        ("ns::Box::Box", 1),
        ("ns::Box::operator*", 1),
        ("ns::Box::operator*() const", 1),
        ("ns::f*", 2),
        ("ns::*", 5),
        ("*char const*", 1),
        ("local", 1),
        ("f", 0),
    ] {
        assert_eq!(count(&image, spec), wanted, "{spec}");
    }
    let is_data = |name: &str| Error::IsData { name: name.into() };
    assert_eq!(
        image.find("_ZN2ns7counterE").unwrap_err(),
        is_data("_ZN2ns7counterE")
    );
    let error = image.find("ns::twise").unwrap_err().to_string();
    assert!(error.contains("ns::twice"), "{error}");
    assert!(matches!(image.find("nothing*"), Err(Error::NoMatch { .. })));
}

#[test]
fn aliases_ifuncs_and_cold_parts() {
    let Some(program) = cpp() else { return };
    let image = image(&program.path).unwrap();
    let plain = &image.find("other").unwrap()[0];
    assert_eq!(
        plain.names.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["other", "plain"]
    );
    assert_eq!(count(&image, "[po]*"), 0, "no brackets in patterns");
    assert!(image.find("chosen").unwrap()[0].is_ifunc);
    let cold = image
        .functions()
        .iter()
        .find(|f| f.is_cold)
        .expect("the throw is split off");
    assert!(cold.names[0].ends_with(".cold"), "{cold:?}");
    assert_eq!(count(&image, "*splits*"), 1);
    assert_eq!(
        count(&image, &cold.names[0]),
        1,
        "by its full name it is found"
    );
}

#[test]
fn separate_debug_files() {
    let Some(program) = cpp() else { return };
    let Some(debug) = program.objcopy(&["--only-keep-debug"], &program.path, "prog.debug") else {
        return;
    };
    let link = format!("--add-gnu-debuglink={}", debug.display());
    let Some(stripped) = program.objcopy(&["--strip-all", &link], &program.path, "stripped") else {
        return;
    };
    let with = image(&stripped).unwrap();
    assert!(!with.is_stripped());
    assert_eq!(with.find("local").unwrap()[0].source, Source::DebugFile);

    fs::create_dir(program.path(".debug")).unwrap();
    fs::rename(&debug, program.path(".debug/prog.debug")).unwrap();
    assert_eq!(count(&image(&stripped).unwrap(), "local"), 1);

    let wrong = b"\x7fELF: another file of this name";
    fs::write(program.path(".debug/prog.debug"), wrong).unwrap();
    assert!(image(&stripped).unwrap().is_stripped());
}

#[test]
fn stripped_functions_are_known_by_address() {
    let Some(program) = cpp() else { return };
    let full = image(&program.path).unwrap();
    let Some(stripped) = program.objcopy(&["--strip-all"], &program.path, "stripped") else {
        return;
    };
    let stripped = image(&stripped).unwrap();
    assert!(stripped.is_stripped() && stripped.missing_symbols(&program.path).is_some());
    for name in ["ns::f(int)", "local", "splits", "main", "plain"] {
        let wanted = &full.find(name).unwrap()[0];
        let found = &stripped.find(&wanted.hex()).unwrap()[0];
        assert_eq!(
            (found.size, found.source),
            (wanted.size, Source::EhFrame),
            "{name}"
        );
        assert_eq!(found.display_name(), wanted.hex());
        assert!(!found.is_cold);
    }
    let cold = full.functions().iter().find(|f| f.is_cold).unwrap();
    assert!(
        stripped.find(&cold.hex()).unwrap()[0].is_cold,
        "found by its unwind information"
    );
}

#[test]
fn without_section_headers() {
    let Some(program) = cpp() else { return };
    let full = image(&program.path).unwrap();
    let mut bytes = fs::read(&program.path).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let bare = Image::parse(&bytes.into(), &NoDebugFiles).unwrap();
    let main = &full.find("main").unwrap()[0];
    assert_eq!(bare.find(&main.hex()).unwrap()[0].size, main.size);
    assert_eq!(bare.header().build_id, full.header().build_id);
}

#[test]
fn mini_debug_info() {
    let Some(program) = cpp() else { return };
    let Some(symbols) = program.objcopy(
        &["-S", "--keep-symbol=main", "--keep-symbol=_ZL5locali"],
        &program.path,
        "mini",
    ) else {
        return;
    };
    if tool("xz", &[symbols.to_str().unwrap()]).is_none() {
        return;
    }
    let add = format!(
        "--add-section=.gnu_debugdata={}",
        program.path("mini.xz").display()
    );
    let Some(packed) = program.objcopy(&["--strip-all", &add], &program.path, "packed") else {
        return;
    };
    let image = image(&packed).unwrap();
    assert!(!image.is_stripped());
    assert_eq!(
        image.find("local").unwrap()[0].source,
        Source::MiniDebugInfo
    );
    assert_eq!(
        count(&image, "splits"),
        0,
        "not exported, and not in MiniDebugInfo"
    );
}

#[test]
fn rust_names() {
    let source = r#"
        mod inner {
            #[inline(never)]
            pub fn work<T: std::fmt::Display>(value: T) -> usize { value.to_string().len() }
        }
        fn main() { std::process::exit(inner::work(std::env::args().count()) as i32) }
    "#;
    // Without an option the compiler chooses the scheme; only v0 can be requested.
    for scheme in [&[][..], &["-Csymbol-mangling-version=v0"]] {
        let options = [&["--crate-name=prog", "-O"], scheme].concat();
        let Some(program) = compile("rustc", "prog.rs", source, &options) else {
            continue;
        };
        let image = image(&program.path).unwrap();
        let found = image.find("prog::inner::work").unwrap();
        println!(
            "{scheme:?}: {} is {}",
            found[0].names[0],
            found[0].display_name()
        );
        assert_eq!(found.len(), 1);
        assert_eq!(count(&image, "prog::inner::*"), 1);
        assert_eq!(count(&image, "prog::main"), 1);
    }
}

#[test]
fn static_and_32_bit_programs() {
    let source = "void _start(void) { for (;;); }\nint helper(int x) { return x + 1; }\n";
    let options = [
        "-O1",
        "-nostdlib",
        "-static",
        "-fasynchronous-unwind-tables",
    ];
    if let Some(program) = compile("gcc", "prog.c", source, &options) {
        let image = image(&program.path).unwrap();
        assert!(image.header().is_static_program());
        assert_eq!(
            image.header().refusal_in_process(),
            Some("statically linked program")
        );
        assert_eq!(count(&image, "helper"), 1);
    }
    let options = ["-m32", options[0], options[1], options[2], options[3]];
    if let Some(program) = compile("gcc", "prog.c", source, &options) {
        let image = image(&program.path).unwrap();
        assert_eq!(
            (image.header().class, image.header().machine),
            (Class::Elf32, Machine::X86)
        );
        assert_eq!(image.header().refusal_in_process(), Some("32-bit program"));
        let helper = &image.find("helper").unwrap()[0];
        assert!(!helper.is_cold && helper.kind == Kind::Plain && helper.size > 0);
    }
}

#[test]
fn other_files_are_refused() {
    let parse = |bytes: &[u8]| Image::parse(&bytes.to_vec().into(), &NoDebugFiles).unwrap_err();
    assert_eq!(parse(b"#!/bin/sh\nexec something\n"), Error::NotElf);
    assert_eq!(parse(b""), Error::NotElf);
    let Some(program) = compile("gcc", "prog.c", "int x;", &["-c"]) else {
        return;
    };
    let bytes = fs::read(&program.path).unwrap();
    assert_eq!(parse(&bytes), Error::NotLoadable { elf_type: 1 });
}

/// The link's name is also that of the stripped program, which has the build-id but no symbols.
#[test]
fn a_debug_link_of_the_programs_own_name_finds_the_debug_file() {
    let Some(program) = cpp() else { return };
    let folder = program.path(".debug");
    fs::create_dir(&folder).unwrap();
    let debug = program.objcopy(&["--only-keep-debug"], &program.path, ".debug/prog");
    let Some(debug) = debug else { return };
    let link = format!("--add-gnu-debuglink={}", debug.display());
    let stripped = program.objcopy(&["--strip-all", &link], &program.path, "stripped");
    let Some(stripped) = stripped else { return };
    fs::rename(stripped, &program.path).unwrap();
    let image = image(&program.path).unwrap();
    assert!(!image.is_stripped());
    assert_eq!(image.find("local").unwrap()[0].source, Source::DebugFile);
}

/// A file without section headers can be run, so its exports and imports must be found as the loader finds them.
#[test]
fn a_file_without_section_headers_has_its_dynamic_symbols() {
    for hash in ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv"] {
        let options = ["-O2", "-shared", "-fPIC", "-Wl,-soname,libown.so.1", hash];
        let Some(program) = compile("g++", "lib.cpp", CPP, &options) else {
            return;
        };
        let (whole, bare) = with_and_without_section_headers(&program.path);
        assert_eq!(bare.header().soname.as_deref(), Some("libown.so.1"));
        for spec in ["ns::f(int)", "plain", "other", "chosen", "main"] {
            let [one, other] = [&whole, &bare].map(|image| image.find(spec).unwrap()[0].address);
            assert_eq!(one, other, "{spec} {hash}");
        }
        assert_eq!(count(&bare, "local"), 0);
        assert_eq!(imports(&bare), imports(&whole));
        assert!(!imports(&bare).is_empty());
    }
}

#[test]
fn a_file_whose_hash_table_is_empty_has_its_imports() {
    let code = "#include <stdio.h>\nint main(void) { puts(\"x\"); return 0; }";
    let options = ["-O2", "-no-pie", "-Wl,--hash-style=gnu"];
    let Some(program) = compile("gcc", "empty.c", code, &options) else {
        return;
    };
    let (whole, bare) = with_and_without_section_headers(&program.path);
    assert_eq!(imports(&bare), imports(&whole));
    assert!(imports(&bare).iter().any(|(name, _)| name == "puts"));
}

fn with_and_without_section_headers(path: &Path) -> (Image, Image) {
    let mut bytes = fs::read(path).unwrap();
    bytes[40..48].fill(0); // offset of section headers
    bytes[58..64].fill(0); // length, number, and index of names
    let bare = Image::parse(&bytes.into(), &NoDebugFiles).unwrap();
    (image(path).unwrap(), bare)
}

fn imports(image: &Image) -> Vec<(String, u64)> {
    let all = image.imports();
    all.map(|(name, slot)| (name.to_owned(), slot)).collect()
}
