//! redis, memcached and nginx under load, attached to while they run.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tiptoe_tests::process::wait_until;
use tiptoe_tests::{Probe, Process, Site, installed, scaled, skipped, symbols};

const NGINX: &str =
    "daemon off; master_process off; pid DIR/pid; error_log DIR/error.log; events {}
http { access_log off; client_body_temp_path DIR; proxy_temp_path DIR; fastcgi_temp_path DIR;
uwsgi_temp_path DIR; scgi_temp_path DIR; server { listen unix:DIR/socket; return 200 hello; } }";

pub(crate) const HTTP_CLIENT: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile('rwb')
for i in range(int(sys.argv[2])):
    f.write(b'GET /%d HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' % i); f.flush()
    length = 0
    while (line := f.readline()) != b'\\r\\n':
        assert line
        if line.lower().startswith(b'content-length:'): length = int(line.split(b':')[1])
    assert f.read(length) == b'hello'
    if i % 900 == 899: s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile('rwb')
print('fine')
";
pub(crate) const CACHE_CLIENT: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile('rwb')
for i in range(int(sys.argv[2])):
    f.write(b'set k%d 0 0 5\\r\\nvalue\\r\\nget k%d\\r\\n' % (i % 50, i % 50)); f.flush()
    assert f.readline() == b'STORED\\r\\n'
    assert f.readline().startswith(b'VALUE') and f.readline() == b'value\\r\\n' and f.readline() == b'END\\r\\n'
print('fine')
";

pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) folder: PathBuf,
}

impl Server {
    /// `DIR` in the arguments and the configuration is the server's folder.
    fn start(program: &Path, arguments: &str) -> Server {
        let folder = Server::folder(program);
        Server::start_in(folder, &mut Command::new(program), arguments)
    }

    pub(crate) fn folder(program: &Path) -> PathBuf {
        static TURN: AtomicU32 = AtomicU32::new(0);
        let name = program.file_name().expect("a program").to_string_lossy();
        // Relaxed: only the numbers must differ.
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let name = format!("tiptoe-{name}-{}-{turn}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        // A server may give up root before it opens its socket in the folder.
        let anybody = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&folder, anybody).expect("the folder is ours");
        folder
    }

    pub(crate) fn start_in(folder: PathBuf, command: &mut Command, arguments: &str) -> Server {
        let configuration = NGINX.replace("DIR", &folder.to_string_lossy());
        std::fs::write(folder.join("nginx.conf"), configuration).expect("the folder is ours");
        let arguments = arguments
            .split(' ')
            .map(|argument| argument.replace("DIR", &folder.to_string_lossy()));
        command.args(arguments).stderr(Stdio::null());
        let server = Server {
            process: Process::start(command),
            folder,
        };
        let socket = server.socket();
        wait_until(
            "the server's socket",
            Duration::from_secs(60 + scaled(1000)),
            || socket.exists(),
        );
        server
    }

    fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the offset of the first instruction after a 5-byte jump at the entry; `None` if not every call reaches it.
fn behind_the_window(path: &Path, function: &str) -> Option<u64> {
    let mut known = symbols(path).into_iter();
    let (_, start) = known.find(|(name, _)| name == function)?;
    let range = [
        format!("--start-address={start}"),
        format!("--stop-address={}", start + 24),
    ];
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .args(range)
        .arg(path)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in text.lines() {
        let Some((address, instruction)) = line.split_once(":\t") else {
            continue;
        };
        let offset = u64::from_str_radix(address.trim(), 16).ok()? - start;
        if offset >= 5 {
            return Some(offset);
        }
        if instruction.starts_with('j')
            || instruction.starts_with("call")
            || instruction.starts_with("ret")
        {
            return None;
        }
    }
    None
}

#[test]
fn redis_counts_as_the_kernel_does_in_the_same_run() {
    let Some(link) = installed("redis-server") else {
        return skipped("redis-server", "not installed");
    };
    let path = link.canonicalize().expect("it exists");
    let server = Server::start(
        &link,
        "--port 0 --unixsocket DIR/socket --save  --io-threads 2 --dir DIR",
    );
    let offsets = |function: &str| Some((function.to_owned(), behind_the_window(&path, function)?));
    let functions: Vec<_> = ["call", "processCommand", "dictFind", "lookupKey"]
        .into_iter()
        .filter_map(offsets)
        .collect();
    assert!(!functions.is_empty(), "no function to compare");
    let (names, after): (Vec<_>, Vec<_>) = functions
        .iter()
        .map(|(name, offset)| (name.clone(), format!("{name}+0x{offset:x}")))
        .unzip();
    let sites = functions.iter().flat_map(|(name, offset)| {
        [
            Site::inside(server.pid(), &path, name, 0),
            Site::inside(server.pid(), &path, name, *offset),
        ]
    });
    let sites: Vec<Site> = sites.collect();
    let kernel = Probe::new(&after)
        .with(&["--via", "kernel"])
        .attach(&[server.pid()]);
    let ours = Probe::new(&names).attach(&[server.pid()]);
    sites.iter().for_each(Site::wait_probed);
    let load = Command::new("redis-benchmark")
        .args([
            "-s",
            server.socket().to_str().expect("text"),
            "-q",
            "-n",
            "10000",
            "-t",
            "set,get,lpush",
        ])
        .output()
        .expect("redis-benchmark runs");
    assert!(
        load.status.success(),
        "{}",
        String::from_utf8_lossy(&load.stderr)
    );
    let (ours, kernel) = (ours.interrupt(), kernel.interrupt());
    for (name, after) in names.iter().zip(&after) {
        assert_eq!(ours.count(name), kernel.count(after), "{name}");
    }
    assert!(ours.count("processCommand") >= 30_000, "{:#}", ours.value);
}

fn everything(program: &str, arguments: &str, client: &str, main_function: Option<&str>) {
    let Some(path) = installed(program) else {
        return skipped(program, "not installed");
    };
    let server = Server::start(&path, arguments);
    let report = Probe::new(&["*"]).attach(&[server.pid()]);
    report.wait_ready();
    let load = Command::new("python3")
        .args(["-c", client])
        .arg(server.socket())
        .arg("3000")
        .output();
    let load = load.expect("python3 runs");
    assert_eq!(
        String::from_utf8_lossy(&load.stdout),
        "fine\n",
        "{}",
        String::from_utf8_lossy(&load.stderr)
    );
    let report = report.interrupt();
    let hits: u64 = report
        .events()
        .iter()
        .filter_map(|event| event["count"].as_u64())
        .sum();
    println!(
        "{program}: {hits} hits; {} in process, {} kernel",
        report.via("agent"),
        report.via("kernel")
    );
    assert!(hits > 3000, "{hits} hits");
    assert!(report.via("agent") > report.via("kernel"));
    if let Some(function) = main_function {
        assert_eq!(report.count(function), 3000);
    }
}

#[test]
fn all_functions_of_memcached_under_load() {
    everything(
        "memcached",
        "-u nobody -t 4 -s DIR/socket",
        CACHE_CLIENT,
        None,
    );
}

#[test]
fn all_functions_of_nginx_under_load() {
    everything(
        "nginx",
        "-e DIR/error.log -p DIR -c DIR/nginx.conf",
        HTTP_CLIENT,
        Some("ngx_http_process_request"),
    );
}
