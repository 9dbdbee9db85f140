//! Finds thread-local variables of a program, a linked library, and an opened library, with glibc and musl.

mod common;
#[path = "common/process.rs"]
mod process;

use std::fs;
use std::path::Path;

use common::{Disk, image, tool};
use process::Process;
use tempfile::TempDir;
use tiptoe_symbol::variable::{LoadedFile, Start, Thread, VariableError, Watch};
use tiptoe_symbol::{Content, Image};

struct Module {
    bytes: Content,
    image: Image,
    bias: u64,
    is_program: bool,
}

impl Module {
    fn of(process: &Process, path: &Path, is_program: bool) -> Module {
        let image = image(path).unwrap();
        let base = process.base(path.to_str().unwrap()).unwrap();
        let bytes = fs::read(path).unwrap().into();
        let bias = if image.header().position_independent {
            base
        } else {
            0
        };
        Module {
            bytes,
            image,
            bias,
            is_program,
        }
    }

    fn address(
        &self,
        process: &Process,
        text: &str,
        thread: Option<Thread>,
    ) -> Result<u64, VariableError> {
        let watch = Watch::parse(text).unwrap();
        let source = Disk::of("/");
        let plan = self
            .image
            .variables(&self.bytes, &source, |v| v.plan(&watch))?;
        let mut read = |address: u64, bytes: &mut [u8]| process.read(address, bytes);
        let block = match thread {
            Some(thread) => Some(thread.block(&self.image, &mut read)?),
            None => None,
        };
        assert_eq!(
            matches!(plan.start, Start::ThreadLocal(_)),
            thread.is_some(),
            "{text}"
        );
        plan.locate(
            &LoadedFile {
                bias: self.bias,
                thread_block: block,
            },
            &mut read,
        )
    }
}

fn check(compiler: &str, [of_program, of_library]: [&[&str]; 2], is_musl: bool) {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("library.c"), include_str!("fixtures/library.c")).unwrap();
    fs::write(path("threads.c"), include_str!("fixtures/threads.c")).unwrap();
    for library in ["early.so", "late.so"] {
        let (to, from) = (path(library), path("library.c"));
        let shared = ["-shared", "-fPIC", "-g", "-o", &to, &from];
        tool(compiler, &[&shared, of_library].concat()).unwrap();
    }
    let (to, from, early) = (path("prog"), path("threads.c"), path("early.so"));
    // `./late.so` would depend on the current folder.
    let source = fs::read_to_string(&from).unwrap();
    fs::write(&from, source.replace("./late.so", &path("late.so"))).unwrap();
    let program = ["-g", "-o", &to, &from, &early, "-pthread", "-ldl"];
    tool(compiler, &[&program, of_program].concat()).unwrap();

    let process = Process::start(Path::new(&to));
    let program = Module::of(&process, Path::new(&to), true);
    let early = Module::of(&process, Path::new(&early), false);
    let late = Module::of(&process, Path::new(&path("late.so")), false);
    let noted = |thread: usize, at: usize| {
        let place = program.address(&process, &format!("places[{thread}][{at}]"), None);
        let mut word = [0; 8];
        assert!(process.read(place.unwrap(), &mut word));
        u64::from_le_bytes(word)
    };
    let cases = [
        (&program, "mine", 1),
        (&program, "wide[64]", 2),
        (&early, "own_mine", 3),
        (&early, "shared_mine", 4),
        (&late, "own_mine", 5),
    ];
    for thread in 0..2 {
        for (module, text, at) in cases {
            let of = Thread {
                pointer: noted(thread, 0),
                bias: module.bias,
                is_program: module.is_program,
                is_musl,
            };
            let found = module.address(&process, text, Some(of));
            println!("{compiler} {of_library:?}: thread {thread}: {text}: {found:x?}");
            assert_eq!(
                found,
                Ok(noted(thread, at)),
                "{compiler} {of_library:?}: {text}"
            );
        }
    }
}

#[test]
fn with_glibc() {
    check("gcc", [&[], &[]], false);
    check(
        "gcc",
        [&["-O2", "-no-pie"], &["-O2", "-ftls-model=initial-exec"]],
        false,
    );
    check("clang", [&["-gdwarf-5"], &["-gdwarf-4"]], false);
}

#[test]
fn with_musl() {
    check("musl-gcc", [&[], &[]], true);
}

#[test]
fn tls_descriptors_are_unsupported() {
    let folder = TempDir::new().unwrap();
    let (from, to) = (
        folder.path().join("library.c"),
        folder.path().join("library.so"),
    );
    fs::write(&from, include_str!("fixtures/library.c")).unwrap();
    let files = ["-o", to.to_str().unwrap(), from.to_str().unwrap()];
    let options = ["-shared", "-fPIC", "-mtls-dialect=gnu2"];
    tool("gcc", &[&options, &files[..]].concat()).unwrap();
    let thread = Thread {
        pointer: 0x1000,
        bias: 0,
        is_program: false,
        is_musl: false,
    };
    let error = thread.block(&image(&to).unwrap(), &mut |_, _| true);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("in an unknown way"), "{error}");
}
