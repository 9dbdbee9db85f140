//! The locks of servers under load.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::{Probe, Process, installed, is_root, skipped};

use crate::servers::{CACHE_CLIENT, Server};

const CLIENTS: usize = 8;
/// PostgreSQL refuses to run as root.
const NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid",
    "nobody",
    "--regid",
    "nogroup",
    "--clear-groups",
];

fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new(NOBODY[0]);
    command.args(&NOBODY[1..]).arg(program);
    command
}

fn postgres() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    folders.find(|folder| folder.join("postgres").exists())
}

fn backends(server: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    let list = list.unwrap_or_default();
    let children = list.split_whitespace().filter_map(|word| word.parse().ok());
    let serves = |pid: &u32| {
        let title = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&title).contains("[local]")
    };
    children.filter(serves).collect()
}

#[test]
#[ignore = "nightly: a server and its clients"]
fn the_locks_of_postgresql_are_its_semaphores() {
    let (Some(programs), Some(bench)) = (postgres(), installed("pgbench")) else {
        return skipped("PostgreSQL", "not installed");
    };
    if !is_root() {
        return skipped("PostgreSQL", "needs root, to start it as nobody");
    }
    let program = programs.join("postgres");
    let folder = Server::folder(&program);
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).expect("it is ours");
    let (data, place) = (folder.join("data"), folder.display().to_string());
    let made = output(
        as_nobody(&programs.join("initdb"))
            .args(["-A", "trust", "-N", "-U", "nobody", "-D"])
            .arg(&data),
    );
    assert!(made.status.success(), "{made:?}");
    let mut start = as_nobody(&program);
    start.arg("-D").arg(&data).args(["-k", &place]);
    start.args(["-c", "listen_addresses=", "-c", "shared_buffers=16MB"]);
    let server = Process::start(&mut start);
    let bench = |arguments: &[&str]| {
        let mut command = Command::new(&bench);
        command.args(["-h", &place, "-U", "nobody"]).args(arguments);
        command.arg("postgres");
        command
    };
    wait_until("the server", Duration::from_secs(20), || {
        output(&mut bench(&["-i", "-q"])).status.success()
    });
    let clients = CLIENTS.to_string();
    let load = Process::start(&mut bench(&["-c", &clients, "-j", "4", "-T", "6"]));
    wait_until("its backends", Duration::from_secs(10), || {
        backends(server.pid()).len() == CLIENTS
    });
    let probe = Probe::lock().with(&["--duration", "3"]);
    let run = probe.attach_and_wait(&backends(server.pid()));
    let report = run.good();
    let (said, status) = load.finish();
    drop(server);
    let _ = std::fs::remove_dir_all(&folder);
    assert!(status.success(), "{said}");
    assert!(said.contains("failed transactions: 0 "), "{said}");
    let locks = report.value["locks"]["rows"].as_array();
    let locks = locks.expect("the waits of the backends");
    let sum = |of_type: &str, what: &str| -> u64 {
        let rows = locks.iter().filter(|row| row["type"] == of_type);
        rows.filter_map(|row| row[what].as_u64()).sum()
    };
    assert!(sum("semaphore", "slept") > 10, "{:#}", report.value);
    let most = CLIENTS as u64 * report.value["duration_ns"].as_u64().unwrap_or(0);
    assert!(sum("semaphore", "total_ns") <= most, "{:#}", report.value);
}

/// The report has holders of the server's mutexes, but only wakers of InnoDB's locks.
#[test]
#[ignore = "nightly: a server and its clients"]
fn the_locks_of_mariadb_are_timed() {
    const UPDATES: u64 = 4000;
    let programs = ["mariadbd", "mariadb-install-db", "mariadb-slap", "mariadb"].map(installed);
    let [Some(program), Some(installer), Some(load), Some(client)] = programs else {
        return skipped("MariaDB", "not installed");
    };
    if !is_root() {
        return skipped("MariaDB", "needs root, to start it as nobody");
    }
    let folder = Server::folder(&program);
    let data = format!("--datadir={}", folder.join("data").display());
    let made = output(as_nobody(&installer).arg("--no-defaults").args([
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        &data,
    ]));
    assert!(made.status.success(), "{made:?}");
    let options = "--no-defaults --datadir=DIR/data --socket=DIR/socket --pid-file=DIR/pid --skip-networking \
                   --innodb-buffer-pool-size=16M --innodb-flush-log-at-trx-commit=0";
    let server = Server::start_in(folder, &mut as_nobody(&program), options);
    let ask = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.arg("--no-defaults").arg("-S").arg(server.socket());
        let said = output(command.args(["-u", "root"]).args(arguments));
        assert!(said.status.success(), "{said:?}");
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let table = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT) ENGINE=InnoDB; \
                 INSERT INTO d.t VALUES (1, 0)";
    ask(&client, &["-e", table]);
    let attached = Probe::lock().attach(&[server.process.pid()]);
    attached.wait_ready();
    let update = "--query=UPDATE d.t SET n = n + 1 WHERE id = 1";
    let [clients, updates] = [CLIENTS as u64, UPDATES].map(|number| number.to_string());
    let amounts = ["--concurrency", &clients, "--number-of-queries", &updates];
    let what = ["--create-schema=d", "--no-drop", update];
    ask(&load, &[&what[..], &amounts].concat());
    let report = attached.interrupt();
    let count = ask(&client, &["-N", "-e", "SELECT n FROM d.t"]);
    assert_eq!(count.trim(), UPDATES.to_string());
    let locks = report.value["locks"]["rows"].as_array().expect("waits");
    let of_type = |name: &'static str| locks.iter().filter(move |row| row["type"] == name);
    let sum =
        |name, what: &str| -> u64 { of_type(name).filter_map(|row| row[what].as_u64()).sum() };
    for name in ["mutex", "futex", "condition"] {
        let counts = ["slept", "total_ns"].map(|what| sum(name, what));
        println!("MariaDB: {name}: {counts:?}");
        assert!(
            counts[0] > 10 && counts[1] > 0,
            "{name}: {:#}",
            report.value
        );
    }
    let has_holders = |row: &serde_json::Value| row["holders"].is_array();
    assert!(of_type("mutex").any(has_holders), "{:#}", report.value);
    assert!(!of_type("futex").any(has_holders), "{:#}", report.value);
}

fn used(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = text.rsplit_once(") ").expect("a line");
    let fields: Vec<&str> = fields.split(' ').collect();
    fields[11..13]
        .iter()
        .filter_map(|word| word.parse::<u64>().ok())
        .sum()
}

#[test]
#[ignore = "nightly: a server and its clients"]
fn memcached_keeps_its_throughput() {
    let Some(path) = installed("memcached") else {
        return skipped("memcached", "not installed");
    };
    let mut command = Command::new(&path);
    let arguments = "-u nobody -t 4 -s DIR/socket";
    let server = Server::start_in(Server::folder(&path), &mut command, arguments);
    let pid = server.process.pid();
    let socket = server.socket();
    let load = || {
        let before = used(pid);
        let clients = [(); 4].map(|()| {
            let mut client = Command::new("python3");
            client.args(["-c", CACHE_CLIENT]).arg(&socket).arg("8000");
            Process::start(&mut client)
        });
        for client in clients {
            assert_eq!(client.finish().0, "fine\n");
        }
        used(pid) - before
    };
    let (mut bare, mut traced) = (u64::MAX, u64::MAX);
    for _ in 0..3 {
        bare = bare.min(load());
        let attached = Probe::lock().attach(&[pid]);
        attached.wait_ready();
        traced = traced.min(load());
        let report = attached.interrupt();
        assert!(report.lock_calls()[0].is_some(), "{:#}", report.value);
    }
    println!("memcached: {bare} ticks without tiptoe, {traced} with");
    assert!(
        3 * traced <= 4 * bare + 6,
        "{traced} ticks instead of {bare}"
    );
}
