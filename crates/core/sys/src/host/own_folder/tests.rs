use super::*;

use std::fs::{Permissions, create_dir, hard_link, metadata, read_dir, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::id;
use std::{format, thread};

type Change = fn(&Path);

const OTHER: u32 = 65_534;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("tiptoe-own-folder-{name}-{}", id()));
        create_dir(&path).unwrap();
        Scratch(path)
    }

    fn own(&self) -> OwnFolder {
        OwnFolder::make(&self.0.join("own")).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join("own").join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn chmod(path: &Path, mode: u32) {
    set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn give(path: &Path) {
    chown(path, Some(OTHER), None).unwrap();
}

fn is_root() -> bool {
    let root = process::geteuid().is_root();
    if !root {
        crate::skipped::skipped("files of another user", "needs root");
    }
    root
}

#[test]
fn a_written_file_is_read() {
    let scratch = Scratch::new("written");
    let path = scratch.0.join("above/own");
    assert!(OwnFolder::open(&path).is_err(), "it does not exist");
    let folder = OwnFolder::make(&path).unwrap();
    for text in [&b"one"[..], b"", b"another"] {
        folder.write("file", text).unwrap();
        assert_eq!(
            OwnFolder::open(&path).unwrap().read("file", 7).unwrap(),
            text
        );
    }
    assert!(folder.read("file", 6).is_err(), "it is longer");
    for (path, mode) in [
        (&path, 0o700),
        (&path.join("file"), 0o600),
        (&scratch.0.join("above"), 0o700),
    ] {
        assert_eq!(metadata(path).unwrap().permissions().mode() & 0o777, mode);
    }
    assert_eq!(read_dir(&path).unwrap().count(), 1, "nothing else is left");
    assert!(folder.read("none", 7).is_err());
}

#[test]
fn files_that_others_may_use_are_not_read() {
    let odd: [(&str, Change); 7] = [
        ("for all to write", |path| chmod(path, 0o666)),
        ("for all to read", |path| chmod(path, 0o644)),
        ("setuid", |path| chmod(path, 0o4600)),
        ("two names", |path| {
            hard_link(path, path.with_extension("2")).unwrap();
        }),
        ("link", |path| {
            std::fs::rename(path, path.with_extension("3")).unwrap();
            symlink(path.with_extension("3"), path).unwrap();
        }),
        ("pipe", |path| {
            std::fs::remove_file(path).unwrap();
            let mode = Mode::from_raw_mode(0o600);
            fs::mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
        }),
        ("another user's", give),
    ];
    for (what, change) in odd {
        if what == "another user's" && !is_root() {
            continue;
        }
        let scratch = Scratch::new("odd");
        let folder = scratch.own();
        folder.write("file", b"text").unwrap();
        assert_eq!(folder.read("file", 9).unwrap(), b"text");
        change(&scratch.path("file"));
        assert!(folder.read("file", 9).is_err(), "{what}");
        folder.write("file", b"new").unwrap();
        assert_eq!(folder.read("file", 9).unwrap(), b"new", "{what}");
        if what == "link" {
            assert_eq!(std::fs::read(scratch.path("file.3")).unwrap(), b"text");
        }
    }
}

#[test]
fn a_folder_of_the_files_name_is_not_written_to() {
    let scratch = Scratch::new("folder");
    let folder = scratch.own();
    create_dir(scratch.path("file")).unwrap();
    assert!(folder.write("file", b"text").is_err());
    assert!(folder.read("file", 9).is_err());
    assert_eq!(read_dir(scratch.0.join("own")).unwrap().count(), 1);
}

#[test]
fn a_folder_that_others_may_use_is_not_used() {
    let odd: [(&str, Change); 6] = [
        ("others may enter", |path| chmod(path, 0o711)),
        ("others may write", |path| chmod(path, 0o777)),
        ("link", |path| {
            std::fs::rename(path, path.with_extension("1")).unwrap();
            symlink(path.with_extension("1"), path).unwrap();
        }),
        ("file", |path| {
            std::fs::remove_dir(path).unwrap();
            std::fs::write(path, "").unwrap();
        }),
        ("another user's", give),
        ("in another user's", |path| give(path.parent().unwrap())),
    ];
    for (what, change) in odd {
        if what.contains("another user's") && !is_root() {
            continue;
        }
        let scratch = Scratch::new("shared");
        drop(scratch.own());
        let path = scratch.0.join("own");
        change(&path);
        assert!(OwnFolder::open(&path).is_err(), "{what}");
        assert!(OwnFolder::make(&path).is_err(), "{what}");
    }
    let scratch = Scratch::new("above");
    if is_root() {
        give(&scratch.0);
        assert!(OwnFolder::make(&scratch.0.join("above/own")).is_err());
        assert_eq!(read_dir(&scratch.0).unwrap().count(), 0, "nothing is made");
    }
}

#[test]
fn several_threads_may_write_at_once() {
    let scratch = Scratch::new("several");
    let folder = scratch.own();
    let texts = [[b'a'; 4096], [b'b'; 4096]];
    folder.write("file", &texts[0]).unwrap();
    thread::scope(|scope| {
        for text in &texts {
            scope.spawn(|| (0..200).for_each(|_| folder.write("file", text).unwrap()));
        }
        for _ in 0..400 {
            let read = folder.read("file", 4096).unwrap();
            assert!(texts.iter().any(|text| text[..] == read[..]));
        }
    });
    assert_eq!(read_dir(scratch.0.join("own")).unwrap().count(), 1);
}
