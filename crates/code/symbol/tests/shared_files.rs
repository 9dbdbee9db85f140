//! Reads debug information that several files share (`.gnu_debugaltlink`, made by dwz).

#[expect(dead_code, reason = "the places of debug files are this test's own")]
mod common;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use common::tool;
use tempfile::TempDir;
use tiptoe_symbol::variable::{Plan, VariableError, Watch};
use tiptoe_symbol::{Content, DebugSource, Image, NoDebugFiles};

/// The type's offset in the shared file.
const TYPE: &str = "12";

struct Program {
    folder: TempDir,
    build_id: String,
}

#[derive(Default)]
struct Places {
    image: PathBuf,
    root: PathBuf,
    cache: Option<PathBuf>,
    served: Option<PathBuf>,
    requests: RefCell<Vec<String>>,
}

impl DebugSource for Places {
    fn image_path(&self) -> Option<&Path> {
        Some(&self.image)
    }

    fn read(&self, path: &Path) -> Option<Content> {
        Some(fs::read(path).ok()?.into())
    }

    fn roots(&self) -> Vec<PathBuf> {
        vec![self.root.clone()]
    }

    fn debuginfod_cache(&self) -> Option<PathBuf> {
        self.cache.clone()
    }

    fn fetch(&self, build_id: &str) -> Option<(PathBuf, Content)> {
        self.requests.borrow_mut().push(build_id.to_owned());
        let path = self.served.clone()?;
        let content = self.read(&path)?;
        Some((path, content))
    }
}

impl Program {
    fn new(name: &str) -> Program {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let main = include_str!("fixtures/dwz_main.s").replace("TYPE\n", &format!("{TYPE}\n"));
        fs::write(path("main.s"), main).unwrap();
        fs::write(path("shared.s"), include_str!("fixtures/dwz_shared.s")).unwrap();
        fs::write(path("main.c"), "int main(void) { return 0; }\n").unwrap();
        let files = [&path("main.c"), &path("main.s")];
        tool("gcc", &["-g0", "-o", &path("plain"), files[0], files[1]]).unwrap();
        let library = ["-shared", "-nostdlib", "-Wl,--build-id=sha1"];
        let last = ["-o", &path("shared"), &path("shared.s")];
        tool("gcc", &[&library[..], &last].concat()).unwrap();
        let shared = fs::read(path("shared")).unwrap().into();
        let shared = Image::parse(&shared, &NoDebugFiles).unwrap();
        let id = shared.header().build_id.clone().unwrap();
        fs::write(path("link"), [name.as_bytes(), b"\0", &id].concat()).unwrap();
        let link = format!("--add-section=.gnu_debugaltlink={}", path("link"));
        tool("objcopy", &[&link, &path("plain"), &path("program")]).unwrap();
        let build_id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Program { folder, build_id }
    }

    fn copy(&self, to: &str) {
        let to = self.folder.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(self.folder.path().join("shared"), to).unwrap();
    }

    fn places(&self) -> Places {
        Places {
            image: self.folder.path().join("program"),
            root: self.folder.path().join("root"),
            ..Places::default()
        }
    }

    fn plan(&self, text: &str, places: &Places) -> Result<Plan, VariableError> {
        let bytes = fs::read(&places.image).unwrap().into();
        let image = Image::parse(&bytes, places).unwrap();
        let watch = Watch::parse(text).unwrap();
        image.variables(&bytes, places, |variables| variables.plan(&watch))
    }

    #[track_caller]
    fn finds(&self, places: &Places) {
        let plan = self.plan("stats.misses", places).unwrap();
        assert_eq!((plan.length(None), &*plan.value.name), (Ok(8), "long"));
    }
}

#[test]
fn a_shared_file_is_found() {
    let program = Program::new("pool/x.debug");
    let places = program.places();
    program.copy("pool/x.debug");
    program.finds(&places);
    fs::remove_dir_all(program.folder.path().join("pool")).unwrap();
    assert!(program.plan("stats.misses", &places).is_err());
    let (first, rest) = program.build_id.split_at(2);
    program.copy(&format!("root/.build-id/{first}/{rest}.debug"));
    places.requests.borrow_mut().clear();
    program.finds(&places);
    fs::remove_dir_all(program.folder.path().join("root")).unwrap();
    program.copy(&format!("cache/{}/debuginfo", program.build_id));
    let cached = Places {
        cache: Some(program.folder.path().join("cache")),
        ..program.places()
    };
    program.finds(&cached);
    assert!(places.requests.borrow().is_empty() && cached.requests.borrow().is_empty());
}

#[test]
fn a_server_is_asked_for_a_missing_shared_file() {
    let program = Program::new("pool/x.debug");
    let places = Places {
        served: Some(program.folder.path().join("shared")),
        ..program.places()
    };
    program.finds(&places);
    assert_eq!(places.requests.borrow().join(" "), program.build_id);
    // This file has another build-id.
    let other = Places {
        served: Some(program.folder.path().join("plain")),
        ..program.places()
    };
    assert!(program.plan("stats.misses", &other).is_err());
}

#[test]
fn a_missing_shared_file_is_answered_with_its_package() {
    let name = "/usr/lib/debug/.dwz/x86_64-linux-gnu/tiptoe-test.debug";
    let program = Program::new(name);
    for text in ["stats.misses", "nothing_here"] {
        let error = program
            .plan(text, &program.places())
            .unwrap_err()
            .to_string();
        for part in [
            name,
            "which does not exist",
            "`apt install tiptoe-test-dbgsym`",
            &format!("debuginfod-find debuginfo {}`", program.build_id),
        ] {
            assert!(error.contains(part), "{text}: no {part} in {error}");
        }
    }
}

/// A program of the user's own has no package.
#[test]
fn missing_debug_information_is_answered_with_its_package() {
    let program = Program::new("none");
    let of_package = Places {
        image: "/usr/bin/sqlite3".into(),
        ..Places::default()
    };
    let plain = fs::read(program.folder.path().join("plain")).unwrap();
    let stripped = program.folder.path().join("stripped");
    fs::write(&stripped, plain).unwrap();
    let path = stripped.to_str().unwrap();
    tool("objcopy", &["--strip-debug", path, path]).unwrap();
    let bytes = Content::from(fs::read(&stripped).unwrap());
    let watch = Watch::parse("stats.misses").unwrap();
    for (places, expected) in [
        (
            &of_package,
            "`apt install $(dpkg -S '*/bin/sqlite3' | cut -d: -f1)-dbgsym`",
        ),
        (&program.places(), "build it with -g"),
    ] {
        let image = Image::parse(&bytes, places).unwrap();
        let plan = image.variables(&bytes, places, |variables| variables.plan(&watch));
        let error = plan.unwrap_err().to_string();
        assert!(error.contains(expected), "no {expected} in {error}");
    }
}
