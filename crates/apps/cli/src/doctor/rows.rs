//! The checks as rows.

use std::os::unix::ffi::OsStrExt;

use tiptoe_event::ShellWord;
use tiptoe_sys::host::Capabilities;
use tiptoe_sys::host::capabilities::{Cap, Check, Refusal, SETCAP, SETCAP_GRANTS};
use tiptoe_sys::host::tracefs::Tracefs;

use super::check_result::{CheckResult, Instrument, State};

/// E2BIG and EINVAL: the kernel does not know an attribute.
const UNKNOWN_ATTRIBUTE: [i32; 2] = [7, 22];

/// A seccomp filter refuses a memfd with this errno; `vm.memfd_noexec` refuses it with EACCES.
const EPERM: i32 = 1;

/// The advice if a seccomp filter refuses a call. No capability is advised, because none overrules a filter.
const WITHOUT_FILTER: &str =
    "run tiptoe without the seccomp filter (container: --security-opt seccomp=unconfined)";

/// Lower limits on open files are reported, because a watch needs a descriptor for each thread and variable.
const FEW_FILES: u64 = 4096;

/// Returns the rows, the most important first. `hidden` is the number of processes whose descriptors this user may not
/// read.
pub fn all(can: &Capabilities, uid: u32, hidden: usize) -> Vec<CheckResult> {
    let grant = Grant { is_root: uid == 0 };
    vec![
        membarrier(can),
        ptrace_scope(can, grant),
        capabilities(can, grant),
        other_users(can, grant, hidden),
        process_memory(can),
        memfd(can),
        process_uprobes(can, grant),
        thread_uprobes(can, grant),
        paranoid(can, grant),
        breakpoints(can, grant),
        hardware(can, grant),
        software(can, grant),
        bpf(can, grant),
        btf(can),
        tracefs(can),
        cgroups(can),
        system_call("rseq", can.rseq),
        system_call("futex_waitv", can.futex_waitv),
        open_files(can),
        pid_namespace(can),
    ]
}

/// How the user gets missing capabilities. Root lacks capabilities only in a container, whose start command must
/// grant them. For other users, they are set on tiptoe's file.
#[derive(Clone, Copy)]
struct Grant {
    is_root: bool,
}

impl Grant {
    fn command(self) -> String {
        if self.is_root {
            "start the container with --cap-add=BPF,CHECKPOINT_RESTORE,PERFMON,SYS_PTRACE".into()
        } else {
            format!("{SETCAP}  # {SETCAP_GRANTS}")
        }
    }

    fn or(self, refusal: Refusal, otherwise: &str) -> String {
        if refusal.is_permission() {
            self.command()
        } else {
            otherwise.into()
        }
    }
}

fn membarrier(can: &Capabilities) -> CheckResult {
    let name = "membarrier SYNC_CORE";
    match can.membarrier_sync_core {
        Ok(()) => CheckResult::ok(name, "running code can be patched"),
        Err(e) => CheckResult::ok(name, e.to_string())
            .no(Instrument::Probe, "no in-process probes, only --via kernel")
            .fix("a kernel of 4.16 or later with CONFIG_MEMBARRIER"),
    }
}

fn ptrace_scope(can: &Capabilities, grant: Grant) -> CheckResult {
    let name = "ptrace scope";
    let only_children = "-p works only with --via kernel; `-- CMD` works";
    let free = can.effective.has(Cap::SysPtrace);
    match can.ptrace_scope {
        None => CheckResult::ok(name, "no restriction (no Yama)"),
        Some(0) => CheckResult::ok(name, "0: no restriction"),
        Some(scope @ 1..=2) if free => {
            CheckResult::ok(name, format!("{scope}, overruled by cap_sys_ptrace"))
        }
        Some(1) => CheckResult::ok(name, "1: own children only")
            .part(Instrument::Probe, only_children)
            .root_may(&["sysctl", "kernel.yama.ptrace_scope=0"]),
        Some(2) => CheckResult::ok(name, "2: only with cap_sys_ptrace")
            .no(Instrument::Probe, only_children)
            .fix(grant.command()),
        Some(scope) => CheckResult::ok(
            name,
            format!("{scope}: no process may attach until the next boot"),
        )
        .no(Instrument::Probe, only_children)
        .fix("remove kernel.yama.ptrace_scope=3 from /etc/sysctl.d and reboot"),
    }
}

fn capabilities(can: &Capabilities, grant: Grant) -> CheckResult {
    let name = "capabilities";
    let wanted = [
        Cap::SysPtrace,
        Cap::Perfmon,
        Cap::Bpf,
        Cap::CheckpointRestore,
    ];
    // cap_sys_admin includes all of them but cap_sys_ptrace.
    let has =
        |cap| can.effective.has(cap) || cap != Cap::SysPtrace && can.effective.has(Cap::SysAdmin);
    let missing: Vec<_> = wanted.into_iter().filter(|cap| !has(*cap)).collect();
    if missing.is_empty() {
        return CheckResult::ok(name, "all that tracing needs");
    }
    let missing: Vec<_> = missing.into_iter().map(Cap::name).collect();
    CheckResult::ok(name, format!("without {}", missing.join(" ")))
        .part(
            Instrument::Probe,
            "only --via agent, only your own programs",
        )
        .part(Instrument::Watch, "own programs only")
        .part(Instrument::Lock, "no kernel locks")
        .part(Instrument::Stat, "own programs only")
        .fix(grant.command())
}

fn other_users(can: &Capabilities, grant: Grant, hidden: usize) -> CheckResult {
    let name = "other users' processes";
    if !can.effective.has(Cap::SysPtrace) {
        return CheckResult::ok(name, "own processes only")
            .part(Instrument::Probe, "-p attaches to your own processes")
            .fix(grant.command());
    }
    if !can.in_first_user_namespace {
        return CheckResult::ok(name, "only those of this user namespace")
            .part(
                Instrument::Probe,
                "-p attaches to those of this user namespace",
            )
            .fix("run tiptoe outside the user namespace (of the container)");
    }
    if !can.effective.has(Cap::DacOverride) {
        return CheckResult::ok(name, "only with --via kernel (no cap_dac_override)")
            .part(Instrument::Probe, "in process, your own processes only")
            .fix(match grant.is_root {
                true => "start the container with --cap-add=DAC_OVERRIDE",
                false => "sudo tiptoe",
            });
    }
    match hidden {
        0 => CheckResult::ok(name, "cap_sys_ptrace and cap_dac_override"),
        // The check passes, because the user cannot make these processes visible.
        some => CheckResult::ok(name, format!("all but {some} that the kernel protects")),
    }
}

fn process_memory(can: &Capabilities) -> CheckResult {
    let name = "process_vm_readv";
    match can.process_vm_readv {
        Ok(()) => CheckResult::ok(name, "memory of other processes can be read"),
        Err(e) => CheckResult::ok(name, e.to_string())
            .no(Instrument::Probe, "`-- CMD` works only with --via kernel")
            .fix(match e.is_permission() {
                true => WITHOUT_FILTER,
                false => "a kernel with CONFIG_CROSS_MEMORY_ATTACH",
            }),
    }
}

fn memfd(can: &Capabilities) -> CheckResult {
    let name = "executable memfd";
    let refusal = match can.executable_memfd {
        Ok(()) => return CheckResult::ok(name, "the agent can enter a process"),
        Err(refusal) => refusal,
    };
    let row = CheckResult::ok(name, refusal.to_string())
        .no(Instrument::Probe, "no in-process probes, only --via kernel");
    match refusal.errno {
        EPERM => row.fix(WITHOUT_FILTER),
        _ => row.root_may(&["sysctl", "vm.memfd_noexec=0"]),
    }
}

fn process_uprobes(can: &Capabilities, grant: Grant) -> CheckResult {
    let name = "kernel uprobes, process";
    match can.process_uprobes {
        Ok(()) => CheckResult::ok(name, "BPF: all threads of a process (--via kernel)"),
        Err(e) => CheckResult::ok(name, e.to_string())
            .no(
                Instrument::Probe,
                "--via kernel misses threads that start later",
            )
            .fix(grant.or(e, "Linux 6.6 or later")),
    }
}

fn thread_uprobes(can: &Capabilities, grant: Grant) -> CheckResult {
    let name = "kernel uprobes, thread";
    match (can.thread_uprobes, can.process_uprobes) {
        (Ok(()), _) => CheckResult::ok(name, "perf events count given threads"),
        (Err(e), Ok(())) => CheckResult::ok(name, format!("not needed beside BPF ({e})")),
        (Err(e), Err(_)) => CheckResult::ok(name, e.to_string())
            .no(Instrument::Probe, "no --via kernel at all")
            .fix(grant.or(e, "a kernel with CONFIG_UPROBE_EVENTS")),
    }
}

fn paranoid(can: &Capabilities, grant: Grant) -> CheckResult {
    let name = "perf_event_paranoid";
    let free = can.effective.has(Cap::Perfmon) || can.effective.has(Cap::SysAdmin);
    match can.perf_event_paranoid {
        None => CheckResult::ok(name, "this kernel has no perf events")
            .no(Instrument::Watch, "no kernel watchpoints")
            .no(Instrument::Stat, "no events of perf")
            .fix("a kernel with CONFIG_PERF_EVENTS"),
        Some(level) if free => CheckResult::ok(name, format!("{level}, overruled by capabilities")),
        Some(level @ ..=0) => CheckResult::ok(name, format!("{level}: all processes and CPUs")),
        Some(level @ 1..=2) => CheckResult::ok(name, format!("{level}: own processes only"))
            .part(Instrument::Watch, "thread by thread, not per CPU")
            .part(Instrument::Stat, "no system-wide or cgroup counts")
            .fix(grant.command()),
        Some(level) => CheckResult::ok(name, format!("{level}: nothing for ordinary users"))
            .no(Instrument::Watch, "no kernel watchpoints")
            .no(Instrument::Stat, "no events of perf")
            .fix(grant.command()),
    }
}

fn breakpoints(can: &Capabilities, grant: Grant) -> CheckResult {
    let name = "hardware breakpoints";
    match can.breakpoints {
        Ok(()) => CheckResult::ok(name, "debug registers can be armed"),
        Err(e) if UNKNOWN_ATTRIBUTE.contains(&e.errno) => CheckResult::ok(name, e.to_string())
            .no(Instrument::Watch, "no watchpoints")
            .fix("Linux 5.13 or later"),
        Err(e) => CheckResult::ok(name, e.to_string())
            .no(Instrument::Watch, "no watchpoints")
            .fix(grant.or(e, "end the debugger that holds all debug registers")),
    }
}

fn hardware(can: &Capabilities, grant: Grant) -> CheckResult {
    let name = "hardware PMU";
    match can.hardware_counters {
        Ok(()) => CheckResult::ok(name, "cycles, instructions, cache misses"),
        Err(e) if e.is_permission() => CheckResult::ok(name, e.to_string())
            .no(Instrument::Stat, "no cycles, instructions or cache misses")
            .fix(grant.command()),
        Err(e) => CheckResult::ok(name, format!("none ({e})"))
            .no(Instrument::Stat, "no cycles, instructions or cache misses")
            .fix("in a virtual machine: enable its virtual PMU (KVM: -cpu host,pmu=on)"),
    }
}

fn software(can: &Capabilities, grant: Grant) -> CheckResult {
    let name = "software counters";
    match can.software_counters {
        Ok(()) => CheckResult::ok(name, "CPU time, faults, switches, migrations"),
        Err(e) => CheckResult::ok(name, e.to_string())
            .no(Instrument::Stat, "no events of perf")
            .fix(grant.or(e, "a kernel with CONFIG_PERF_EVENTS")),
    }
}

fn bpf(can: &Capabilities, grant: Grant) -> CheckResult {
    let name = "BPF programs";
    let kinds = |works: bool| {
        let of_state = can.bpf.iter().filter(|(_, check)| check.is_ok() == works);
        of_state
            .map(|(kind, _)| kind.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    match can.bpf.iter().find_map(|(_, check)| check.err()) {
        None => CheckResult::ok(name, kinds(true)),
        Some(e) => CheckResult::ok(name, format!("refused: {e}; not {}", kinds(false)))
            .no(
                Instrument::Watch,
                "no aggregation at the hit, costlier watchpoints",
            )
            .no(Instrument::Lock, "no kernel locks, no static programs")
            .no(
                Instrument::Stat,
                "perf's own events for cgroups and processes, which cost ten times as much",
            )
            .fix(grant.or(e, "a kernel with CONFIG_BPF_SYSCALL")),
    }
}

fn btf(can: &Capabilities) -> CheckResult {
    let name = "BTF";
    match can.btf {
        Ok(()) => CheckResult::ok(name, "/sys/kernel/btf/vmlinux"),
        Err(e) => CheckResult::ok(name, e.to_string())
            .no(Instrument::Lock, "no kernel locks, no static programs")
            .no(Instrument::Stat, "perf's own cgroup mode")
            .fix("a kernel with CONFIG_DEBUG_INFO_BTF"),
    }
}

fn tracefs(can: &Capabilities) -> CheckResult {
    let name = "tracefs";
    let row = match &can.tracefs {
        Tracefs::Readable(root) => return CheckResult::ok(name, root.display().to_string()),
        Tracefs::NotMounted => CheckResult::ok(name, "not mounted").root_may(&[
            "mount",
            "-t",
            "tracefs",
            "tracefs",
            "/sys/kernel/tracing",
        ]),
        Tracefs::Unreadable(root) => {
            CheckResult::ok(name, format!("closed to this user: {}", root.display())).fix(format!(
                "sudo mount -o remount,mode=755 {}",
                ShellWord(root.as_os_str().as_bytes())
            ))
        }
    };
    row.part(
        Instrument::Probe,
        "uprobes that other tools define there are not seen",
    )
    .no(Instrument::Lock, "no kernel locks, no futex tracepoints")
    .part(Instrument::Stat, "no tracepoints")
}

fn cgroups(can: &Capabilities) -> CheckResult {
    let name = "cgroups";
    let found = can.cgroups.describe();
    match (&can.cgroups.v2, &can.cgroups.v1_perf_event) {
        (Some(_), _) => CheckResult::ok(name, found),
        (None, Some(_)) => CheckResult::ok(name, found)
            .part(Instrument::Stat, "version 1's perf_event hierarchy only")
            .fix("boot with systemd.unified_cgroup_hierarchy=1"),
        (None, None) => CheckResult::ok(name, found)
            .no(Instrument::Stat, "no counts by cgroup")
            .root_may(&["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"]),
    }
}

/// Returns the row of a newer system call. Its state is never `No`, because nothing depends on the call.
fn system_call(name: &'static str, check: Check) -> CheckResult {
    match check {
        Ok(()) => CheckResult::ok(name, "known to this kernel"),
        Err(e) => CheckResult {
            state: State::Part,
            ..CheckResult::ok(name, format!("{e}; nothing depends on it"))
        },
    }
}

fn open_files(can: &Capabilities) -> CheckResult {
    let name = "open files";
    let limit = can.open_files;
    let found = format!("{}, up to {}", limit.soft, limit.hard);
    if limit.hard >= FEW_FILES || can.effective.has(Cap::SysResource) {
        return CheckResult::ok(name, found);
    }
    CheckResult::ok(name, found)
        .part(Instrument::Watch, "few threads and variables at a time")
        .fix("ulimit -Hn 1048576, as root, before tiptoe")
}

fn pid_namespace(can: &Capabilities) -> CheckResult {
    let name = "pid namespace";
    if can.sees_all_processes {
        return CheckResult::ok(name, "the first: every process is visible");
    }
    CheckResult::ok(name, "a container's: its own processes only")
        .part(Instrument::Stat, "no system-wide names")
        .fix("start the container with --pid=host")
}

#[cfg(test)]
mod tests;
