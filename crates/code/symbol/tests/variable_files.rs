//! Finds variables with debug information in the file, in another file, packed, split, or missing.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Disk, image, tool};
use tempfile::TempDir;
use tiptoe_symbol::variable::{Plan, Start, ValueKind, Watch, check_alignment};

struct Program {
    folder: TempDir,
    path: PathBuf,
}

impl Program {
    fn of(compiler: &str, source: (&str, &str), options: &[&str]) -> Program {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path(source.0), source.1).unwrap();
        let files = ["-o", &path("prog"), &path(source.0)];
        tool(compiler, &[options, &files].concat()).unwrap();
        let path = folder.path().join("prog");
        Program { folder, path }
    }

    fn build(compiler: &str, options: &[&str]) -> Program {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("variables.c"), include_str!("fixtures/variables.c")).unwrap();
        fs::write(path("hidden.c"), include_str!("fixtures/hidden.c")).unwrap();
        let (out, main, hidden) = (path("prog"), path("variables.c"), path("hidden.c"));
        let files = ["-o", &out, &main, &hidden, "-Wl,--build-id"];
        tool(compiler, &[options, &files].concat()).unwrap();
        let path = folder.path().join("prog");
        Program { folder, path }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn objcopy(&self, options: &[&str], to: &str) -> PathBuf {
        let (from, to) = (self.file("prog"), self.file(to));
        tool("objcopy", &[options, &[&from, &to]].concat()).unwrap();
        to.into()
    }
}

fn plan(path: &Path, text: &str) -> Result<Plan, String> {
    let bytes = fs::read(path).unwrap().into();
    let watch = Watch::parse(text).unwrap();
    let image = image(path).unwrap();
    let plan = image.variables(&bytes, &Disk::of(path), |variables| variables.plan(&watch));
    println!("{text}: {plan:?}");
    plan.map_err(|error| error.to_string())
}

fn refused(path: &Path, text: &str, parts: &[&str]) {
    let error = plan(path, text).unwrap_err();
    for part in parts {
        assert!(error.contains(part), "{text}: {error}");
    }
}

fn same(plain: &Path, other: &Path) {
    for text in [
        "stats.hits",
        "count",
        "table[1]->next->weight",
        "hidden->second",
        "mine",
    ] {
        assert_eq!(plan(other, text), plan(plain, text), "{text}");
    }
}

#[test]
fn debug_information_beside_the_file() {
    let program = Program::build("gcc", &["-g"]);
    let debug = program.objcopy(&["--only-keep-debug"], "prog.debug");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    for strip in ["--strip-all", "--strip-debug"] {
        let stripped = program.objcopy(&[strip, &link], "stripped");
        same(&program.path, &stripped);
    }
}

#[test]
fn debug_information_packed_or_in_type_units() {
    let plain = Program::build("gcc", &["-g"]);
    let mixes = [
        ("gcc", &["-g", "-gz"][..]),
        ("gcc", &["-gdwarf-4", "-fdebug-types-section"]),
        ("gcc", &["-gdwarf-5", "-fdebug-types-section"]),
        ("gcc", &["-gdwarf-5", "-gdwarf64"]),
    ];
    for (compiler, options) in mixes {
        same(&plain.path, &Program::build(compiler, options).path);
    }
    // Another compiler chooses other addresses.
    for dwarf in ["-gdwarf-4", "-gdwarf-5"] {
        let program = Program::build("clang", &[dwarf]);
        let found = plan(&program.path, "stats.colour").unwrap();
        let symbol = image(&program.path).unwrap().variables_named("stats");
        assert_eq!(found.start, Start::Module(symbol[0]));
        assert!(matches!(
            found.value.kind,
            ValueKind::Enumeration {
                is_signed: true,
                ..
            }
        ));
    }
}

#[test]
fn without_debug_information_types_are_unknown() {
    let program = Program::build("gcc", &["-g0"]);
    let counter = plan(&program.path, "counter").unwrap();
    assert_eq!(
        (counter.length(None), &*counter.value.name),
        (Ok(8), "unknown")
    );
    let mine = plan(&program.path, "mine").unwrap();
    assert!(matches!(mine.start, Start::ThreadLocal(_)));
    assert!(plan(&program.path, "stats").unwrap().length(None).is_err());
    refused(
        &program.path,
        "stats.hits",
        &[
            "the type of `stats` is unknown",
            "`.hits`",
            "build it with -g",
        ],
    );
    refused(
        &program.path,
        "statz",
        &["no variable `statz`; the nearest: `stats`"],
    );
    refused(
        &program.path,
        "twin",
        &["the name of several variables: `0x"],
    );
    let count = image(&program.path).unwrap().variables_named("count.0");
    assert_eq!(
        plan(&program.path, "'count.0'").unwrap().start,
        Start::Module(count[0])
    );
}

#[test]
fn debug_information_in_dwo_files_is_not_read() {
    let program = Program::build("gcc", &["-g", "-gsplit-dwarf"]);
    refused(
        &program.path,
        "stats.hits",
        &["2 of its source files", "`.dwo` files", "-gsplit-dwarf"],
    );
    assert_eq!(plan(&program.path, "counter").unwrap().length(None), Ok(8));
    refused(
        &program.path,
        "tick::count",
        &["no variable", "`.dwo` files"],
    );
    let program = Program::build("gcc", &["-g"]);
    let link = program.file("link");
    fs::write(&link, b"../shared.debug\0\x01\x02\x03").unwrap();
    let link = format!("--add-section=.gnu_debugaltlink={link}");
    let linked = program.objcopy(&[&link], "linked");
    refused(
        &linked,
        "nothing_here",
        &["in `../shared.debug`, which does not exist"],
    );
}

/// The program has a copy of libc's variable; with `-fPIC` it has no copy.
#[test]
fn variables_of_another_file() {
    let program = Program::build("gcc", &["-g", "-no-pie", "-fno-pie"]);
    let copy = plan(&program.path, "environ").unwrap();
    assert_eq!((&*copy.value.name, copy.length(None)), ("char **", Ok(8)));
    let program = Program::build("gcc", &["-g", "-fPIC"]);
    refused(
        &program.path,
        "environ",
        &["defined in another file", "`BINARY:environ`"],
    );
}

#[test]
fn variables_that_were_left_out() {
    let program = Program::build("gcc", &["-g", "-O2"]);
    refused(
        &program.path,
        "dead",
        &["no place in memory", "optimised out"],
    );
    refused(&program.path, "main::at", &["`main::at`"]);
    // `call` and `main` have a variable `end`; that of `call` has no location.
    refused(&program.path, "end", &["a local variable of `main`"]);
    let unused = [
        "-g",
        "-fdata-sections",
        "-ffunction-sections",
        "-Wl,--gc-sections",
    ];
    let program = Program::build("gcc", &unused);
    refused(&program.path, "pointer_to_ptr", &["no place in memory"]);
    refused(
        &program.path,
        "tick::local",
        &["a local variable of `tick`", "address"],
    );
    refused(&program.path, "tick", &["is a function", "`tick:x`"]);
    let code = plan(&program.path, "tick:x").unwrap();
    let tick = image(&program.path).unwrap().find("tick").unwrap()[0].address;
    assert_eq!(code.start, Start::Module(tick));
    refused(&program.path, "tock:x", &["no function `tock`", "`tick`"]);
}

/// g++ writes a declaration for a variable that it removes, as for variables of other files.
#[test]
fn namespaces_of_one_file() {
    let source = "
        namespace { int gone; int kept; }
        namespace ns { namespace { int within; } static int hidden; }
        int main(int count, char **) {
            kept = count;
            asm volatile(\"\" : : \"r\"(&kept) : \"memory\");
            if (count > 99) gone = ns::within = ns::hidden = 1;
            return kept;
        }";
    let program = Program::of("g++", ("one.cpp", source), &["-g", "-O2"]);
    assert_eq!(plan(&program.path, "kept").unwrap().length(None), Ok(4));
    for name in [
        "gone",
        "(anonymous namespace)::gone",
        "ns::within",
        "hidden",
    ] {
        refused(
            &program.path,
            name,
            &["no place in memory", "optimised out"],
        );
    }
}

#[test]
fn variables_in_registers() {
    let source = "
        register long fixed asm(\"r15\");
        int main(void) {
            register long counter = 3;
            return (int)(fixed + counter);
        }";
    let program = Program::of("gcc", ("one.c", source), &["-g", "-O0"]);
    for name in ["fixed", "counter", "main::counter"] {
        refused(
            &program.path,
            name,
            &["is in a register", "stored to", "--by arg0"],
        );
    }
}

#[test]
fn addresses_and_alignment() {
    let program = Program::build("gcc", &["-g"]);
    let (absolute, own) = (
        plan(&program.path, "0x1234:8"),
        plan(&program.path, "prog:0x1234"),
    );
    assert_eq!(absolute.unwrap().start, Start::Absolute(0x1234));
    assert_eq!(own.as_ref().unwrap().start, Start::Module(0x1234));
    assert!(own.unwrap().length(None).is_err());
    let packed = plan(&program.path, "packed.value").unwrap();
    let Start::Module(address) = packed.start else {
        panic!("{packed:?}")
    };
    let error = check_alignment(address + 1, packed.length(None).unwrap()).unwrap_err();
    println!("{error}");
    refused(&program.path, "function->x", &["no members"]);
    let error = plan(&program.path, "*nothing")
        .unwrap()
        .length(None)
        .unwrap_err();
    assert!(
        error.to_string().contains("`void`, which has no size"),
        "{error}"
    );
}
