//! Describes the machine for a bug report. Only chosen lines of files are used, so that no user, host or process is
//! named.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

const MOST_READ: u64 = 16 << 20;

const CPU: [&str; 7] = [
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "microcode",
    "flags",
];

/// The printed fields of `/etc/os-release`. Other fields may contain a company's addresses.
const DISTRIBUTION: [&str; 4] = ["ID", "VERSION_ID", "VERSION_CODENAME", "PRETTY_NAME"];

const RIGHTS: [&str; 4] = ["CapEff", "CapBnd", "NoNewPrivs", "Seccomp"];

const LIMITS: [&str; 4] = [
    "Max file size",
    "Max open files",
    "Max locked memory",
    "Max address space",
];

const SETTINGS: [&str; 25] = [
    "/proc/sys/fs/protected_regular",
    "/proc/sys/fs/protected_symlinks",
    "/proc/sys/kernel/bpf_stats_enabled",
    "/proc/sys/kernel/kptr_restrict",
    "/proc/sys/kernel/modules_disabled",
    "/proc/sys/kernel/perf_cpu_time_max_percent",
    "/proc/sys/kernel/perf_event_max_sample_rate",
    "/proc/sys/kernel/perf_event_mlock_kb",
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/unprivileged_bpf_disabled",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/net/core/bpf_jit_enable",
    "/proc/sys/net/core/bpf_jit_harden",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/memfd_noexec",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/online",
    "/sys/fs/selinux/enforce",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/security/lockdown",
    "/sys/kernel/security/lsm",
    "/sys/module/apparmor/parameters/enabled",
];

const C_LIBRARIES: [&str; 5] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/libc.so.6",
    "/usr/lib64/libc.so.6",
    "/usr/lib/libc.so.6",
    "/lib/ld-musl-x86_64.so.1",
];

pub fn describe(root: &Path) -> String {
    let read = |path: &str| read(root, path);
    let cpu = read("/proc/cpuinfo");
    // The blocks of the other CPUs repeat the first block.
    let first = cpu.split("\n\n").next().unwrap_or_default();
    let of = |path: &str, separator, names| fields(&read(path), separator, names);
    let sections = [
        ("KERNEL", kernel(&read)),
        ("CPU", fields(first, ':', &CPU)),
        ("MEMORY", of("/proc/meminfo", ':', &["MemTotal"])),
        ("DISTRIBUTION", of("/etc/os-release", '=', &DISTRIBUTION)),
        ("C LIBRARY", c_libraries(root)),
        ("RIGHTS", of("/proc/self/status", ':', &RIGHTS)),
        ("LIMITS", limits(&read("/proc/self/limits"))),
        ("SETTINGS", settings(read)),
    ];
    let text = |(name, text): (&str, String)| match text.is_empty() {
        true => format!("{name}\nunknown\n\n"),
        false => format!("{name}\n{text}\n"),
    };
    sections.map(text).concat()
}

/// Returns the kernel's version without `/proc/version`, which names the user and host that built it.
fn kernel(read: &impl Fn(&str) -> String) -> String {
    let [release, version] = ["osrelease", "version"]
        .map(|name| read(&format!("/proc/sys/kernel/{name}")).trim().to_owned());
    let architecture = std::env::consts::ARCH;
    format!("Linux {release} {version} {architecture}\n")
}

fn fields(text: &str, separator: char, names: &[&str]) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if let Some((name, value)) = line.split_once(separator)
            && names.contains(&name.trim())
        {
            let _ = writeln!(out, "{}: {}", name.trim(), value.trim().trim_matches('"'));
        }
    }
    out
}

fn limits(text: &str) -> String {
    let is_one = |line: &&str| LIMITS.iter().any(|name| line.starts_with(name));
    let lines = text.lines().filter(is_one);
    lines
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

fn settings(read: impl Fn(&str) -> String) -> String {
    let line = |path: &&str| {
        let value = read(path);
        let value = if value.is_empty() {
            "unknown"
        } else {
            value.trim()
        };
        format!("{path}: {value}\n")
    };
    SETTINGS.iter().map(line).collect()
}

/// Returns the C libraries' versions, from their files, because tiptoe may be linked statically to another version.
fn c_libraries(root: &Path) -> String {
    let line = |path: &&str| {
        let content = read(root, path);
        let version = content.split_once("GNU C Library ");
        let version = version.and_then(|(_, rest)| rest.split('\n').next());
        (!content.is_empty()).then(|| match version {
            Some(version) => format!("{path}: GNU C Library {version}\n"),
            None => format!("{path}: another library, or of unknown version\n"),
        })
    };
    C_LIBRARIES.iter().filter_map(line).collect()
}

/// Returns an empty text if the file cannot be read.
fn read(root: &Path, path: &str) -> String {
    let path = root.join(path.trim_start_matches('/'));
    let mut bytes = Vec::new();
    let Ok(file) = File::open(path) else {
        return String::new();
    };
    // Some kernel files exist but cannot be read.
    let _ = file.take(MOST_READ).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 9] = [
        ("/proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"),
        ("/proc/sys/kernel/version", "#1 SMP Debian 6.1.55-1\n"),
        ("/proc/sys/kernel/hostname", "secret-host\n"),
        (
            "/proc/version",
            "Linux version 6.1 (secret-user@secret-host)\n",
        ),
        (
            "/proc/cpuinfo",
            "vendor_id\t: GenuineIntel\nserial\t: secret\nmodel name\t: A CPU\n\nmodel name\t: secret\n",
        ),
        (
            "/etc/os-release",
            "PRETTY_NAME=\"Debian 12\"\nHOME_URL=\"https://secret\"\nID=debian\n",
        ),
        (
            "/lib64/libc.so.6",
            "\x7fELF\0GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\nsecret",
        ),
        (
            "/proc/self/status",
            "Name:\tsecret\nCapEff:\t0000\nUid:\t1000\n",
        ),
        ("/proc/sys/kernel/yama/ptrace_scope", "1\n"),
    ];

    #[test]
    fn only_chosen_lines_are_written() {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in FILES {
            let path = root.path().join(&path[1..]);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let text = describe(root.path());
        for line in [
            "Linux 6.1.0-13-amd64 #1 SMP Debian 6.1.55-1 x86_64",
            "vendor_id: GenuineIntel",
            "model name: A CPU",
            "PRETTY_NAME: Debian 12",
            "ID: debian",
            "/lib64/libc.so.6: GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.",
            "CapEff: 0000",
            "/proc/sys/kernel/yama/ptrace_scope: 1",
            "/sys/kernel/security/lockdown: unknown",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line}: {text}");
        }
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn this_machine_is_described() {
        let text = describe(Path::new("/"));
        for part in [
            "KERNEL\nLinux ",
            "model name: ",
            "PRETTY_NAME: ",
            "CapEff: ",
            "Max open files",
        ] {
            assert!(text.contains(part), "no {part}: {text}");
        }
    }
}
