//! On a new machine, installs the package, runs doctor and README's three commands, and removes the package.
//! Nothing may remain.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tiptoe_tests::debian::machine;
use tiptoe_tests::root;

use crate::install::{folder, released, said};

const PACKAGES: [&str; 4] = ["redis-server", "redis-tools", "memcached", "nginx-light"];

const ENTER: &str = r#"set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/changed,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
exec chroot . bash /root/session.sh"#;

const BEGIN: &str = r#"set -e
unset XDG_CACHE_HOME
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive
cd /root
step() { echo "== $EPOCHREALTIME $1"; }
redis-server --port 0 --unixsocket /tmp/redis --save '' >/dev/null &
memcached -u root -s /tmp/memcached &
until [ -S /tmp/redis ] && [ -S /tmp/memcached ]; do sleep 0.05; done
redis-benchmark -s /tmp/redis -l -q -t get,set >/dev/null 2>&1 &
mkdir /tmp/nginx
cat >/tmp/nginx/conf <<NGINX
daemon off; worker_processes 1; pid /run/nginx.pid; error_log /tmp/nginx/log;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path /tmp/nginx/1; proxy_temp_path /tmp/nginx/2; fastcgi_temp_path /tmp/nginx/3;
    uwsgi_temp_path /tmp/nginx/4; scgi_temp_path /tmp/nginx/5;
    server { listen 127.0.0.1:7080; return 200; }
}
NGINX
nginx -c /tmp/nginx/conf &
until [ -s /run/nginx.pid ] && (: >/dev/tcp/127.0.0.1/7080) 2>/dev/null; do sleep 0.05; done
while exec 3<>/dev/tcp/127.0.0.1/7080; do printf 'GET / HTTP/1.0\r\n\r\n' >&3; cat <&3 >/dev/null; exec 3>&-; sleep 0.1; done &
step install
apt install -y ./tiptoe_*.deb 2>&1
step doctor
tiptoe doctor
"#;

const END: &str = "step remove
apt purge -y tiptoe 2>&1
rm -r /var/cache/tiptoe
step end
kill %1 %2 %3 %4 %5
";

/// Folders in which apt, dpkg and servers leave files.
const OTHERS: [&str; 8] = [
    "root",
    "tmp",
    "run",
    "var/log",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/cache/apt",
    "var/cache/debconf",
];

fn three_commands() -> Vec<String> {
    let readme = fs::read_to_string(root().join("README.md")).expect("README");
    let typed = readme.lines().filter_map(|line| line.strip_prefix("$ "));
    let replaced = typed.map(|line| {
        line.replace("-p 9410", "-p $(pidof redis-server)")
            .replace("-p 1278", "-p $(pidof memcached)")
            .replace(
                "-p 2417",
                "-p $(cat /proc/$(cat /run/nginx.pid)/task/*/children)",
            )
    });
    let commands: Vec<String> = replaced.collect();
    assert_eq!(commands.len(), 3, "{commands:#?}");
    let has_pid = |line: &&String| line.contains("-p $(");
    assert_eq!(commands.iter().filter(has_pid).count(), 3, "{commands:#?}");
    commands
}

fn changed(upper: &Path, lower: &Path, below: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(upper.join(below)).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = below.join(entry.file_name());
        let kind = entry.file_type().expect("its type");
        if OTHERS.iter().any(|other| path == Path::new(other)) {
            continue;
        }
        // A character device marks a removed file.
        if !kind.is_dir() || kind.is_char_device() || !lower.join(&path).exists() {
            all.push(path.clone());
        }
        if kind.is_dir() {
            all.extend(changed(upper, lower, &path));
        }
    }
    all
}

fn times(screen: &str) -> String {
    let steps = screen.lines().filter_map(|line| line.strip_prefix("== "));
    let steps = steps.map(|step| step.split_once(' ').expect("a time, and a step"));
    let steps: Vec<(f64, &str)> = steps
        .map(|(at, step)| (at.parse().expect("a time"), step))
        .collect();
    let mut text = String::new();
    for pair in steps.windows(2) {
        writeln!(text, "{:8.3} s  {}", pair[1].0 - pair[0].0, pair[0].1).expect("a string");
    }
    let (first, last) = (steps[0].0, steps[steps.len() - 1].0);
    writeln!(text, "{:8.3} s  all", last - first).expect("a string");
    text
}

#[test]
fn the_times_of_steps_are_kept() {
    let screen = "a\n== 10.5 install\nb\n== 12.0 doctor\n== 12.25 end\n";
    let kept = "   1.500 s  install\n   0.250 s  doctor\n   1.750 s  all\n";
    assert_eq!(times(screen), kept);
}

#[test]
#[ignore = "nightly: needs what `make dist` makes, and installs a machine"]
fn the_three_commands_work_on_a_new_machine_and_nothing_remains() {
    let lower = machine("bookworm", &PACKAGES).expect("its packages can be reached");
    let place = folder("new");
    for name in ["changed/root", "work", "root"] {
        fs::create_dir_all(place.join(name)).expect("our own folder");
    }
    let home = place.join("changed/root");
    let package = released(".deb");
    fs::copy(&package, home.join(package.file_name().expect("a name"))).expect("a copy");
    let mut script = BEGIN.to_owned();
    for command in three_commands() {
        writeln!(
            script,
            "step '{}'\n{command} 2>&1",
            command.replace('\'', "")
        )
        .expect("a string");
    }
    fs::write(home.join("session.sh"), script + END).expect("our own folder");
    let mut session = Command::new("unshare");
    session.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]);
    session.args([ENTER, "sh"]).arg(&lower).arg(&place);
    let screen = said(&mut session);
    let kept = root().join("target/new-machine-times");
    fs::write(&kept, times(&screen)).expect("target is writable");
    for part in [
        "\nyou can: probe watch lock stat",
        "dictFind\n",
        "memcached (pid ",
        "nginx:ngx_time_update+",
    ] {
        assert!(screen.contains(part), "no `{part}` in {screen}");
    }
    assert_eq!(screen.matches("cost of tracing: ").count(), 3, "{screen}");
    let left = changed(&place.join("changed"), &lower, Path::new(""));
    assert_eq!(left, Vec::<PathBuf>::new(), "{screen}");
}
