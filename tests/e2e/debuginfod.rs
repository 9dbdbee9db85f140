//! Debug information from a debuginfod server on localhost.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::{Process, command, installed, skipped, target};

struct StrippedProgram {
    folder: PathBuf,
    build_id: String,
}

impl StrippedProgram {
    fn new() -> StrippedProgram {
        let folder = std::env::temp_dir().join(format!("tiptoe-debuginfod-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let objcopy = |options: &[&str], to: &str| {
            let mut objcopy = Command::new("objcopy");
            objcopy
                .args(options)
                .arg(target("watched"))
                .arg(folder.join(to));
            assert!(output(&mut objcopy).status.success());
        };
        objcopy(&["--only-keep-debug"], "debug");
        objcopy(&["--strip-debug"], "watched");
        let notes = output(
            Command::new("readelf")
                .arg("-n")
                .arg(folder.join("watched")),
        );
        let notes = String::from_utf8(notes.stdout).expect("text");
        let (_, id) = notes.split_once("Build ID: ").expect("a build-id");
        let build_id = id.split_whitespace().next().expect("digits").to_owned();
        StrippedProgram { folder, build_id }
    }

    /// Watches a variable's member, which needs the variable's type.
    fn watch(&self, urls: &str, cache: &str) -> Command {
        let mut tiptoe = command();
        tiptoe.args(["watch", "stats.state", "--via", "agent", "--changed", "--"]);
        tiptoe
            .arg(self.folder.join("watched"))
            .args(["corrupt", "1"]);
        tiptoe.env("DEBUGINFOD_URLS", urls);
        tiptoe.env("DEBUGINFOD_CACHE_PATH", self.folder.join(cache));
        tiptoe
    }
}

fn serve(file: &Path, build_id: &str) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (content, path) = (
        std::fs::read(file).expect("a file"),
        format!("/buildid/{build_id}/debuginfo"),
    );
    let (tell, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let wanted = lines.first().and_then(|line| line.split(' ').nth(1));
            let (status, body) = match wanted == Some(&*path) {
                true => ("200 OK", &content[..]),
                false => ("404 Not Found", &b""[..]),
            };
            let _ = tell.send(wanted.unwrap_or_default().to_owned());
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // The client may end early.
            let _ = (&stream)
                .write_all(head.as_bytes())
                .and_then(|()| (&stream).write_all(body));
        }
    });
    (url, requests)
}

#[test]
fn a_server_is_asked_for_the_type_of_a_variable() {
    if installed("debuginfod-find").is_none() {
        return skipped("debuginfod", "`debuginfod-find` is not installed");
    }
    let program = StrippedProgram::new();
    let (url, requests) = serve(&program.folder.join("debug"), &program.build_id);
    let said = output(&mut program.watch("", "none"));
    let talk = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(2), "{talk}");
    assert!(talk.contains("no debug information"), "{talk}");
    let said = output(&mut program.watch(&url, "cache"));
    let talk = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        said.status.success() && talk.contains("value 1 -> 57005"),
        "{talk}"
    );
    let asked: Vec<String> = requests.try_iter().collect();
    assert_eq!(asked, [format!("/buildid/{}/debuginfo", program.build_id)]);
    let said = output(program.watch("", "cache").env_remove("DEBUGINFOD_URLS"));
    let talk = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        said.status.success() && talk.contains("value 1 -> 57005"),
        "{talk}"
    );
    assert_eq!(requests.try_iter().count(), 0);
}

#[test]
fn a_signal_while_debug_information_is_fetched_kills_the_held_command() {
    let program = StrippedProgram::new();
    let [client, asked] = ["debuginfod-find", "asked"].map(|name| program.folder.join(name));
    let script = format!("#!/bin/sh\n: > {}\nexec sleep 1000\n", asked.display());
    std::fs::write(&client, script).expect("a temporary folder");
    let mode = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&client, mode).expect("our own file");
    let path = std::env::var("PATH").unwrap_or_default();
    let (report, talk) = (program.folder.join("report"), program.folder.join("talk"));
    for has_file in [false, true] {
        let mut tiptoe = command();
        tiptoe.args(["watch", "stats.state", "--via", "kernel"]);
        if has_file {
            tiptoe.arg("-o").arg(&report);
        }
        tiptoe.arg("--").arg(program.folder.join("watched"));
        tiptoe.args(["corrupt", "1"]);
        tiptoe.env("PATH", format!("{}:{path}", program.folder.display()));
        tiptoe.env("DEBUGINFOD_URLS", "http://127.0.0.1:1");
        tiptoe.env("DEBUGINFOD_CACHE_PATH", program.folder.join("none"));
        tiptoe.stderr(std::fs::File::create(&talk).expect("a temporary folder"));
        let tiptoe = Process::start(&mut tiptoe);
        wait_until("the client's start", Duration::from_secs(60), || {
            asked.exists()
        });
        std::fs::remove_file(&asked).expect("our own file");
        tiptoe.signal(libc::SIGTERM);
        let (said, status) = tiptoe.finish();
        assert_eq!(status.code(), Some(128 + libc::SIGTERM));
        assert_eq!(said, "", "the command began");
        let talk = std::fs::read_to_string(&talk).expect("our own file");
        let has_note = talk.contains("nothing was counted");
        assert_eq!(has_note, !has_file, "{talk}");
        assert!(!has_file || talk.is_empty(), "{talk}");
    }
}
