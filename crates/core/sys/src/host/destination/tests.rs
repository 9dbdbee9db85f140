use super::*;

use std::fs as std_fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::panic;
use std::path::PathBuf;
use std::process::id;
use std::string::ToString;

const OTHER: u32 = 65_534;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tiptoe-destination-{name}-{}", id()));
        std_fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn sticky(name: &str) -> Folder {
        let folder = Folder::new(name);
        std_fs::set_permissions(&folder.0, Permissions::from_mode(0o1777)).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        std_fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn fifo(&self, name: &str) -> PathBuf {
        fs::mknodat(
            CWD,
            self.path(name),
            FileType::Fifo,
            Mode::from_raw_mode(0o666),
            0,
        )
        .unwrap();
        self.path(name)
    }
}

use std_fs::Permissions;

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std_fs::remove_dir_all(&self.0);
    }
}

fn is_root() -> bool {
    let root = process::geteuid().is_root();
    if !root {
        crate::skipped::skipped("files of another user", "needs root");
    }
    root
}

fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(OTHER), Some(OTHER)).unwrap();
}

fn write(path: &Path, private: bool) {
    match Destination::open(path, private).unwrap() {
        Destination::Whole(whole) => {
            whole.file().write_all(b"new").unwrap();
            whole.commit().unwrap();
        }
        Destination::Direct(mut file) => file.write_all(b"new").unwrap(),
    }
}

fn refusal(path: &Path) -> String {
    Destination::open(path, false).unwrap_err().to_string()
}

fn mode(path: &Path) -> u32 {
    std_fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_file_appears_whole_or_not_at_all() {
    let folder = Folder::new("whole");
    let path = folder.file("report", "old");
    let Destination::Whole(whole) = Destination::open(&path, false).unwrap() else {
        panic!("a regular file is replaced");
    };
    whole.file().write_all(b"half").unwrap();
    assert_eq!(std_fs::read_to_string(&path).unwrap(), "old");
    drop(whole);
    assert_eq!(
        std_fs::read_dir(&folder.0).unwrap().count(),
        1,
        "no temporary file is left"
    );
    write(&path, false);
    assert_eq!(std_fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(std_fs::read_dir(&folder.0).unwrap().count(), 1);
}

#[test]
fn a_replaced_file_keeps_its_mode_and_owner() {
    let folder = Folder::new("kept");
    let path = folder.file("report", "old");
    std_fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    write(&path, true);
    assert_eq!(mode(&path), 0o640);
    std_fs::set_permissions(&path, Permissions::from_mode(0o4755)).unwrap();
    write(&path, false);
    assert_eq!(mode(&path), 0o755);
    if is_root() {
        chown(&path, Some(OTHER), Some(OTHER)).unwrap();
        write(&path, false);
        let found = std_fs::metadata(&path).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), mode(&path)),
            (OTHER, OTHER, 0o755)
        );
    }
    assert_eq!(std_fs::read_to_string(&path).unwrap(), "new");
}

#[test]
fn a_new_file_with_values_is_for_its_owner_alone() {
    let folder = Folder::new("private");
    write(&folder.path("values"), true);
    assert_eq!(mode(&folder.path("values")), 0o600);
    write(&folder.path("counts"), false);
    let readable = mode(&folder.path("counts")) & 0o077;
    assert_eq!(readable == 0, process::geteuid().is_root(), "{readable:o}");
}

#[test]
fn another_users_link_in_a_sticky_folder_is_not_followed() {
    let (shared, own) = (Folder::sticky("links"), Folder::new("target"));
    let target = own.file("report", "old");
    let link = shared.path("link");
    symlink(&target, &link).unwrap();
    write(&link, false);
    assert!(
        std_fs::symlink_metadata(&link).unwrap().is_symlink(),
        "a link stays a link"
    );
    assert_eq!(std_fs::read_to_string(&target).unwrap(), "new");
    if !is_root() {
        return;
    }
    give(&link);
    assert!(refusal(&link).contains("another user's link"));
    // The link is also refused inside a path, and after our own link.
    symlink(&own.0, shared.path("folder")).unwrap();
    symlink(shared.path("folder"), own.path("back")).unwrap();
    write(&shared.path("folder/first"), false);
    give(&shared.path("folder"));
    assert!(refusal(&shared.path("folder/second")).contains("another user's link"));
    assert!(refusal(&own.path("back/second")).contains("another user's link"));
    symlink(&target, own.path("link")).unwrap();
    give(&own.path("link"));
    write(&own.path("link"), false);
    give(&shared.0);
    write(&link, false);
}

#[test]
fn another_users_file_in_a_sticky_folder_is_not_replaced() {
    if !is_root() {
        return;
    }
    let shared = Folder::sticky("planted");
    let path = shared.file("report", "old");
    give(&path);
    assert!(refusal(&path).contains("belongs to another user"));
    assert_eq!(std_fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(std_fs::read_dir(&shared.0).unwrap().count(), 1);
}

#[test]
fn a_pipe_is_opened_without_waiting() {
    let folder = Folder::new("pipes");
    let pipe = folder.fifo("pipe");
    assert!(refusal(&pipe).contains("no process reads"));
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let reader = fs::open(&pipe, flags, Mode::empty()).unwrap();
    let Destination::Direct(mut file) = Destination::open(&pipe, false).unwrap() else {
        panic!("a pipe is not replaced");
    };
    let status = fs::fcntl_getfl(&file).unwrap();
    assert!(
        !status.contains(OFlags::NONBLOCK),
        "a slow reader is waited for"
    );
    file.write_all(b"new").unwrap();
    let mut read = [0; 8];
    assert_eq!(File::from(reader).read(&mut read).unwrap(), 3);
}

#[test]
fn pipes_and_devices_of_another_user_are_not_opened() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("devices");
    let pipe = folder.fifo("pipe");
    let _reader = fs::open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
    write(&pipe, false);
    give(&pipe);
    assert!(refusal(&pipe).contains("pipe or device belongs to another user"));
    let null = folder.path("null");
    let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0o666));
    if fs::mknodat(CWD, &null, kind, mode, fs::makedev(1, 3)).is_err() {
        return crate::skipped::skipped("a device of another user", "no right to make devices");
    }
    write(&null, false);
    give(&null);
    assert!(refusal(&null).contains("pipe or device belongs to another user"));
}

#[test]
fn descriptors_of_our_own_are_written_to() {
    let (reader, writer) = std::io::pipe().unwrap();
    write(Path::new(&format!("/dev/fd/{}", writer.as_raw_fd())), false);
    let mut read = [0; 8];
    assert_eq!((&reader).read(&mut read).unwrap(), 3);
    let folder = Folder::new("descriptors");
    let path = folder.file("log", "old ");
    let log = File::options().append(true).open(&path).unwrap();
    write(
        Path::new(&format!("/proc/self/fd/{}", log.as_raw_fd())),
        false,
    );
    assert_eq!(std_fs::read_to_string(&path).unwrap(), "old new");
}

#[test]
fn paths_without_a_file_are_refused() {
    let folder = Folder::new("none");
    symlink("loop", folder.path("loop")).unwrap();
    folder.file("file", "");
    for (path, why) in [
        ("", "Is a directory"),
        ("new/", "No such file"),
        ("missing/report", "No such file"),
        ("file/report", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
    ] {
        let message = refusal(&folder.path(path));
        assert!(message.contains(why), "{path}: {message}");
    }
    assert!(refusal(Path::new("")).contains("No such file"));
}
