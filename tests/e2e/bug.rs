//! `tiptoe bug` writes what a bug report needs, and nothing secret.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tiptoe_tests::{Process, command, is_root, skipped, target};

use crate::doctor::{UnprivilegedTiptoe, cgroup};

const FILES: [&str; 3] = ["doctor.txt", "system.txt", "version.txt"];

const SECRETS: [&str; 6] = [
    "secret-host",
    "secret-user",
    "secret-home",
    "secret-variable",
    "secret-argument",
    "secret-program",
];

fn public_folder(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("tiptoe-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a temporary folder");
    let anybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&place, anybody).expect("the folder is ours");
    place
}

fn written(folder: &Path) -> (Vec<String>, String) {
    let (mut names, mut text) = (Vec::new(), String::new());
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        names.push(
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned(),
        );
        text += &std::fs::read_to_string(&path).expect("text");
    }
    names.sort();
    (names, text)
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path)
        .expect("it exists")
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn it_writes_the_files_that_it_prints() {
    let place = public_folder("bug");
    let run = |words: &[&str]| {
        let mut tiptoe = command();
        tiptoe.arg("bug").args(words).current_dir(&place);
        tiptoe.output().expect("it runs")
    };
    let output = run(&[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("look at these files before you send them"),
        "{said}"
    );
    let folder = place.join("tiptoe-bug");
    let (names, text) = written(&folder);
    assert_eq!(names, FILES);
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(listed.lines().count(), FILES.len(), "{listed}");
    for name in FILES {
        assert!(listed.contains(&format!("tiptoe-bug/{name}: ")), "{listed}");
        assert_eq!(mode(&folder.join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&folder), 0o700);
    for part in [
        "\nagent ",
        "\nBPF watch ",
        "you can: ",
        "model name: ",
        "\nKERNEL\n",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(run(&["other"]).status.success());
    assert_eq!(written(&place.join("other")).0, FILES);
}

/// Users send the whole folder, so it must not contain other files.
#[test]
fn an_existing_folder_is_refused_and_unchanged() {
    let place = public_folder("bug-exists");
    std::fs::write(place.join("mine"), "").expect("a file");
    let refused = |folder: &Path, why: &str| {
        let output = command().arg("bug").arg(folder).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() == 2 && lines[1].starts_with("hint: "), "{said}");
        assert!(
            lines[0].starts_with("error: ") && lines[0].contains(why),
            "{said}"
        );
        assert!(output.stdout.is_empty());
    };
    refused(&place, "exists");
    refused(&place.join("mine"), "exists");
    refused(&place.join("none/folder"), "cannot be created");
    assert_eq!(written(&place).0, ["mine"]);
}

fn with_secrets(tiptoe: &Command, folder: &Path) -> Output {
    let script = "hostname secret-host && exec \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--uts", "sh", "-c", script, "sh"]);
    unshare.arg(tiptoe.get_program()).args(tiptoe.get_args());
    for (name, value) in [
        ("HOME", "/home/secret-home"),
        ("USER", "secret-user"),
        ("LOGNAME", "secret-user"),
        ("TOKEN", "secret-variable"),
    ] {
        unshare.env(name, value);
    }
    unshare.arg("bug").arg(folder).output().expect("it runs")
}

#[test]
fn nothing_secret_is_written() {
    if !is_root() {
        return skipped("a machine of another name", "needs root");
    }
    let Some(cgroup) = cgroup() else {
        return skipped("a foreign tracer", "cgroup version 2 is not mounted");
    };
    let place = public_folder("bug-secrets");
    let program = place.join("secret-program");
    std::fs::copy(target("tracer"), &program).expect("a copy");
    let tracer = Process::waiting(
        &program,
        &[cgroup.to_str().expect("text"), "secret-argument"],
    );
    let user = UnprivilegedTiptoe::new();
    for (who, tiptoe) in [("root", command()), ("a-user", user.with(&[]))] {
        let folder = place.join(who);
        let output = with_secrets(&tiptoe, &folder);
        assert!(output.status.success(), "{who}: {output:?}");
        let (names, text) = written(&folder);
        assert_eq!(names, FILES, "{who}");
        for secret in SECRETS {
            assert!(!text.contains(secret), "{who}: {secret} in {text}");
        }
        let others = text.contains("names and process ids are left out");
        assert_eq!(others, who == "root", "{who}: {text}");
    }
    drop(tracer);
}
