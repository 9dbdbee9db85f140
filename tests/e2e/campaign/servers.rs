//! Servers whose clients check each answer.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tiptoe_tests::process::output;
use tiptoe_tests::tiptoe::take_report;
use tiptoe_tests::{Probe, Report, command, installed};

use super::{EVERYTHING, each};
use crate::servers::{CACHE_CLIENT, HTTP_CLIENT, Server};

/// Servers that refuse to run as root run as this user.
const NOBODY: u32 = 65534;

struct Service {
    path: PathBuf,
    arguments: &'static str,
    is_nobodys: bool,
    prepare: fn(&Service, &Path),
    client: fn(&Path) -> Command,
}

impl Service {
    fn named(
        name: &str,
        arguments: &'static str,
        client: fn(&Path) -> Command,
    ) -> Result<Service, String> {
        Ok(Service {
            path: installed(name).ok_or_else(|| format!("{name} is not installed"))?,
            arguments,
            is_nobodys: false,
            prepare: |_, _| {},
            client,
        })
    }

    fn own<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        match self.is_nobodys {
            true => command.uid(NOBODY).gid(NOBODY),
            false => command,
        }
    }

    fn answers(&self, server: &Server) -> String {
        let answered = output(&mut (self.client)(&server.socket()));
        let why = String::from_utf8_lossy(&answered.stderr);
        assert!(answered.status.success(), "{}: {why}", self.path.display());
        String::from_utf8_lossy(&answered.stdout).into_owned()
    }

    fn serve(
        &self,
        start: impl FnOnce(&Path) -> Command,
        during: impl FnOnce(&Server) -> String,
    ) -> (String, Option<i32>) {
        let folder = Server::folder(&self.path);
        (self.prepare)(self, &folder);
        let mut command = start(&folder);
        let mut server = Server::start_in(folder, self.own(&mut command), self.arguments);
        let answers = during(&server);
        server.process.signal(libc::SIGTERM);
        let status = server.process.wait();
        (answers, status.code())
    }

    fn check(&self, how: &[&str]) {
        let probe = Probe::new(EVERYTHING).with(how);
        let alone = self.serve(|_| Command::new(&self.path), |server| self.answers(server));
        let mut report = None;
        let launch = |folder: &Path| {
            let (launch, path) = probe.launch(&self.path);
            report = Some(path);
            reachable(&launch, folder)
        };
        let launched = self.serve(launch, |server| self.answers(server));
        assert_eq!(launched, alone, "launched");
        has_hits(take_report(&report.expect("it was launched")).as_ref());
        let attach = |server: &Server| {
            let attached = probe.attach(&[server.process.pid()]);
            attached.wait_ready();
            let answers = self.answers(server);
            has_hits(Some(&attached.interrupt()));
            assert_eq!(self.answers(server), answers, "detached");
            answers
        };
        let attached = self.serve(|_| Command::new(&self.path), attach);
        assert_eq!(attached, alone, "attached");
    }
}

fn reachable(launch: &Command, folder: &Path) -> Command {
    let copy = folder.join("tiptoe");
    fs::copy(command().get_program(), &copy).expect("the folder is ours");
    let mut command = Command::new(copy);
    command.args(launch.get_args());
    command
}

fn has_hits(report: Option<&Report>) {
    let report = report.expect("a report");
    let is_hit = |event: &serde_json::Value| event["count"].as_u64() > Some(0);
    assert!(report.events().iter().any(is_hit), "{:#}", report.value);
}

type Build = fn() -> Result<Service, String>;

const SERVICES: [(&str, Build); 4] = [
    ("redis", || {
        let arguments = "--port 0 --unixsocket DIR/socket --save  --io-threads 2 --dir DIR";
        Service::named("redis-server", arguments, |socket| {
            python(REDIS_CLIENT, socket)
        })
    }),
    ("memcached", || {
        Service::named("memcached", "-u nobody -t 4 -s DIR/socket", |socket| {
            python(CACHE_CLIENT, socket)
        })
    }),
    ("nginx", || {
        let arguments = "-e DIR/error.log -p DIR -c DIR/nginx.conf";
        Service::named("nginx", arguments, |socket| python(HTTP_CLIENT, socket))
    }),
    ("postgres", postgres),
];

#[test]
#[ignore = "nightly: all functions of real programs"]
fn all_functions_of_servers_are_counted() {
    each(&SERVICES, 1, |build| {
        build().map(|service| service.check(&[]))
    });
}

#[test]
#[ignore = "nightly: all functions of real programs"]
fn all_functions_of_servers_are_timed() {
    each(&SERVICES, 1, |build| {
        build().map(|service| service.check(&["--latency"]))
    });
}

fn python(client: &str, socket: &Path) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", client]).arg(socket).arg("500");
    command
}

const REDIS_CLIENT: &str = r"
import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); f = s.makefile('rwb')
def ask(*words):
    f.write(b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%s\r\n' % (len(w), w) for w in (str(w).encode() for w in words))); f.flush()
    return answer()
def answer():
    line = f.readline()[:-2]
    if line[:1] == b'$': return f.read(int(line[1:]) + 2)[:-2] if line != b'$-1' else None
    return [answer() for _ in range(int(line[1:]))] if line[:1] == b'*' else line
ask('FLUSHALL')
for i in range(int(sys.argv[2])):
    assert ask('SET', 'k%d' % (i % 50), i * 'x') == b'+OK' and ask('GET', 'k%d' % (i % 50)) == i * b'x'
    assert ask('INCRBY', 'sum', i) == b':%d' % (i * (i + 1) // 2) and ask('GET', 'none') is None
    assert ask('RPUSH', 'list', i) == b':%d' % (i + 1) and ask('ZADD', 'set', i % 7, i) == b':1'
    assert ask('EVAL', 'return {ARGV[1] + 1, redis.call([[LLEN]], KEYS[1])}', 1, 'list', i) == [b':%d' % (i + 1)] * 2
assert ask('SORT', 'list', 'DESC', 'LIMIT', 0, 2) == [b'%d' % (int(sys.argv[2]) - n) for n in (1, 2)]
assert ask('NOTHING')[:4] == b'-ERR'
print(ask('GET', 'sum'), ask('ZRANGEBYSCORE', 'set', 3, 3)[:3])
";

const SQL: &str = r"create temporary table t(a int primary key, b text, c float8);
insert into t select i, 'row ' || i, i / 7.0 from generate_series(1, 3000) i; create index on t(b); analyze t;
select count(*), sum(a), max(b), round(avg(sin(c))::numeric, 12) from t where b like 'row 1%';
select x.a, y.b from t x join t y on x.a = y.a * 2 where y.b ~ '77$' order by 1 desc limit 5;
select md5(string_agg(b, ',' order by b)) from t; select 1 / 0; select jsonb_agg(a) from t where a < 5;
do $$ begin perform 1 / 0; exception when division_by_zero then raise notice 'caught'; end $$;";

/// Retries, because the socket exists before the server answers.
const ASKS: &str = r#"until pg_isready -q -h "$0"; do sleep 0.1; done; exec psql -h "$0" "$@""#;

fn postgres() -> Result<Service, String> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut found = versions.map(|version| version.path().join("bin/postgres"));
    let path = found
        .find(|path| path.exists())
        .ok_or("postgres is not installed")?;
    let arguments = "-D DIR/data -k DIR -c listen_addresses= -c fsync=off";
    let client = |socket: &Path| {
        let folder = socket.parent().expect("it is in a folder");
        let mut client = Command::new("sh");
        client.args(["-c", ASKS]).arg(folder);
        client.args(["-X", "-A", "-t", "-U", "tester", "-d", "postgres"]);
        client.args(SQL.lines().flat_map(|line| ["-c", line]));
        client
    };
    Ok(Service {
        path,
        arguments,
        is_nobodys: true,
        prepare: |service, folder| {
            let mut prepare = Command::new(service.path.with_file_name("initdb"));
            prepare.args([
                "-U",
                "tester",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                "-D",
            ]);
            let done = output(service.own(prepare.arg(folder.join("data")).current_dir(folder)));
            assert!(done.status.success(), "{done:?}");
            let socket = std::os::unix::fs::symlink(".s.PGSQL.5432", folder.join("socket"));
            socket.expect("the folder is ours");
        },
        client,
    })
}
