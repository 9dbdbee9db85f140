//! Servers answer as without tracing while every call is followed to its return.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tiptoe_tests::process::{output, wait_until};
use tiptoe_tests::truth::{ReturnComparison, Truth};
use tiptoe_tests::{Probe, Process, Report, Site, installed, scaled, skipped, target};

const ANSWER: Duration = Duration::from_secs(20);

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = format!("tiptoe-timed-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        // Workers that give up root write into the folder.
        let anybody = Permissions::from_mode(0o777);
        std::fs::set_permissions(&folder, anybody).expect("the folder is ours");
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    fn connect(&self) -> UnixStream {
        let mut stream = None;
        wait_until("the server", Duration::from_secs(60), || {
            stream = UnixStream::connect(self.path("socket")).ok();
            stream.is_some()
        });
        let stream = stream.expect("connected");
        let [read, written] = [UnixStream::set_read_timeout, UnixStream::set_write_timeout]
            .map(|set| set(&stream, Some(ANSWER)));
        read.and(written).expect("our own socket");
        stream
    }

    fn pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.path("pid")).ok()?;
        text.trim().parse().ok()
    }

    fn end_all(&self) {
        self.end();
        let until = Instant::now() + ANSWER;
        while self.pid().is_some() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&self) {
        if let Some(pid) = self.pid() {
            // SAFETY: kill takes two numbers. The server removes its pid file before it ends, so no other process has
            // the id.
            unsafe { libc::kill(pid as i32, libc::SIGTERM) };
        }
    }
}

struct EndOnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for EndOnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.end();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn every_end_is_known(report: &Report) {
    let number = |event: &serde_json::Value, key: &str| event[key].as_u64().expect("a number");
    let mut left = 0;
    let followed = report.events().iter();
    let followed = followed.filter(|event| event.get("returns").is_some());
    for event in followed {
        let ends = ["returns", "left", "inside", "only_counted"].map(|key| number(event, key));
        assert_eq!(
            number(event, "count"),
            ends.iter().sum::<u64>(),
            "{event:#}"
        );
        left += ends[1];
    }
    println!("{left} calls were left");
}

fn conversations(folder: &Folder, rounds: u64) -> Vec<Vec<u8>> {
    let client = |number: u64| {
        let mut stream = BufReader::new(folder.connect());
        let mut answers = Vec::new();
        for round in 0..rounds {
            let line = match round % 11 {
                0 => format!("x{round}\n"),
                _ => format!("{}\n", round * 7 + number),
            };
            let asked = stream.get_mut().write_all(line.as_bytes());
            asked.expect("the server reads");
            let end = stream.read_until(b'\n', &mut answers);
            assert_ne!(end.expect("the server answers"), 0, "it hung up");
        }
        answers
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|n| scope.spawn(move || client(n))).collect();
        let answers = clients.into_iter().map(|client| client.join());
        answers.map(|answers| answers.expect("fine")).collect()
    })
}

fn serve<R: Send>(name: &str, start: impl FnOnce(&str) -> R + Send) -> (Vec<Vec<u8>>, R) {
    let folder = Folder::new(name);
    let rounds = scaled(20_000).max(44);
    std::thread::scope(|scope| {
        let socket = folder.text("socket");
        let server = scope.spawn(move || start(&socket));
        let _end = EndOnPanic(|| {
            let asked = UnixStream::connect(folder.path("socket"));
            // A server that does not listen has ended.
            let _ = asked.and_then(|mut server| server.write_all(b"quit\n"));
        });
        // The idle connection keeps a worker inside calls until the end.
        let _idle = folder.connect();
        let answers = conversations(&folder, rounds);
        let quit = folder.connect().write_all(b"quit\n");
        quit.expect("the server reads");
        (answers, server.join().expect("it ends"))
    })
}

#[test]
fn a_server_whose_threads_throw() {
    let program = target("serves");
    let (expected, alone) = serve("alone", |socket| {
        let output = output(Command::new(&program).arg(socket));
        String::from_utf8(output.stdout).expect("text")
    });
    let specs = ["*", "libc.so.6:*", "libstdc++*:*", "libgcc_s*:*"];
    let probe = Probe::new(&specs).with(&["--latency"]);
    let (answers, run) = serve("traced", |socket| probe.run(&program, &[socket]));
    assert!(answers == expected, "other answers than without tracing");
    assert_eq!(String::from_utf8_lossy(&run.stdout), alone);
    let (report, truth) = (run.good(), Truth::parse(&alone));
    report.assert_returns(&truth, ReturnComparison::Enough);
    every_end_is_known(report);
    let rounds = 8 * scaled(20_000).max(44);
    assert_eq!(report.number("answers", "returns"), rounds);
    assert!(report.number("parses", "left") > rounds / 4);
}

const NGINX: &str = "daemon off; pid DIR/pid; error_log DIR/error.log; events {}
http { access_log off; sendfile on; client_body_temp_path DIR; proxy_temp_path DIR;
fastcgi_temp_path DIR; uwsgi_temp_path DIR; scgi_temp_path DIR;
server { listen unix:DIR/socket; root DIR/files; } }";

const SIZES: [usize; 5] = [0, 1, 4_096, 100_000, 3_000_000];

fn website(name: &str) -> Folder {
    let folder = Folder::new(name);
    let configuration = NGINX.replace("DIR", &folder.text(""));
    std::fs::write(folder.path("nginx.conf"), configuration).expect("the folder is ours");
    std::fs::create_dir_all(folder.path("files")).expect("the folder is ours");
    for size in SIZES {
        let bytes: Vec<u8> = (0..size).map(|at| (at * at / 7) as u8).collect();
        let file = folder.path("files").join(size.to_string());
        std::fs::write(&file, bytes).expect("the folder is ours");
        // The time is fixed, because answers contain it.
        let file = std::fs::File::open(file).expect("it is there");
        let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        file.set_modified(long_ago).expect("the file is ours");
    }
    folder
}

impl Folder {
    fn nginx(&self, more: &str) -> [String; 8] {
        let words = ["-e", "error.log", "-p", "", "-c", "nginx.conf", "-g", ""];
        let mut words = words.map(str::to_owned);
        words[1] = self.text("error.log");
        words[3] = self.text("");
        words[5] = self.text("nginx.conf");
        words[7] = more.to_owned();
        words
    }
}

fn fetch(folder: &Folder) -> Vec<Vec<u8>> {
    let mut stream = BufReader::new(folder.connect());
    let names = SIZES.iter().map(usize::to_string);
    let names = names.chain(["missing".to_owned()]);
    let answer = |name: String| {
        let request = format!("GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n");
        let asked = stream.get_mut().write_all(request.as_bytes());
        asked.expect("nginx reads");
        let (mut answer, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            let read = stream.read_line(&mut line).expect("nginx answers");
            assert_ne!(read, 0, "nginx hung up after {answer}");
            if let Some(number) = line.strip_prefix("Content-Length: ") {
                length = number.trim().parse().expect("a length");
            }
            if !line.starts_with("Date: ") {
                answer += &line;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).expect("nginx answers");
        [answer.into_bytes(), body].concat()
    };
    names.map(answer).collect()
}

const ROUNDS: u64 = 20;

fn fetch_rounds(folder: &Folder, expected: &[Vec<u8>]) {
    for _ in 0..ROUNDS {
        assert!(
            fetch(folder) == expected,
            "other answers than without tracing"
        );
    }
}

fn untraced(nginx: &Path) -> Vec<Vec<u8>> {
    let folder = website("untraced");
    let mut command = Command::new(nginx);
    let _process = Process::start(command.args(folder.nginx("master_process off;")));
    let _end = EndOnPanic(|| folder.end_all());
    let answers = fetch(&folder);
    assert!(answers[4].starts_with(b"HTTP/1.1 200") && answers[4].len() > 3_000_000);
    assert!(answers[5].starts_with(b"HTTP/1.1 404"));
    answers
}

fn requests(report: &Report) -> [u64; 2] {
    let request = "ngx_http_process_request";
    [report.count(request), report.number(request, "returns")]
}

#[test]
fn nginx_from_its_start() {
    let Some(nginx) = installed("nginx") else {
        return skipped("nginx", "not installed");
    };
    let expected = untraced(&nginx);
    let folder = website("started");
    let probe = Probe::new(&["*"]).with(&["--latency"]);
    let run = std::thread::scope(|scope| {
        let arguments = folder.nginx("master_process off;");
        let run = scope.spawn(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            probe.run(&nginx, &arguments)
        });
        let _end = EndOnPanic(|| folder.end_all());
        fetch_rounds(&folder, &expected);
        folder.end();
        run.join().expect("it ends")
    });
    let report = run.good();
    assert_eq!(requests(report), [ROUNDS * 6; 2]);
    every_end_is_known(report);
}

#[test]
fn a_running_worker_of_nginx() {
    let Some(nginx) = installed("nginx") else {
        return skipped("nginx", "not installed");
    };
    let expected = untraced(&nginx);
    let folder = website("attached");
    let mut command = Command::new(&nginx);
    let process = Process::start(command.args(folder.nginx("worker_processes 1;")));
    let _end = EndOnPanic(|| folder.end_all());
    assert!(fetch(&folder) == expected);
    let master = process.pid();
    let children = format!("/proc/{master}/task/{master}/children");
    let children = std::fs::read_to_string(children).expect("the master lives");
    let worker: u32 = children.trim().parse().expect("one worker");
    let path = nginx.canonicalize().expect("it exists");
    let site = Site::inside(worker, &path, "ngx_http_process_request", 0);
    let probe = Probe::new(&["*"]).with(&["--latency"]);
    let attached = probe.attach(&[worker]);
    site.wait_probed();
    fetch_rounds(&folder, &expected);
    let report = attached.interrupt();
    assert_eq!(requests(&report), [ROUNDS * 6; 2]);
    every_end_is_known(&report);
    site.wait_original();
    fetch_rounds(&folder, &expected);
    folder.end();
    assert!(process.finish().1.success());
}
