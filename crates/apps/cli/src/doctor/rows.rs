//! The checks in words: what was found, what it limits, what would change it.

use std::os::unix::ffi::OsStrExt;

use clap::ValueEnum;
use serde::Serialize;
use tiptoe_event::ShellWord;
use tiptoe_sys::host::Capabilities;
use tiptoe_sys::host::capabilities::{Cap, Check, Refusal, SETCAP, SETCAP_GRANTS};
use tiptoe_sys::host::tracefs::Tracefs;

use super::fix::Fix;

/// The instruments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Instrument {
    /// Functions of programs
    Probe,
    /// Accesses to variables
    Watch,
    /// Waits for locks
    Lock,
    /// Counts by perf's names of events
    Stat,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is there.
    Ok,
    /// It is there, with less than it could do.
    Part,
    /// It is not.
    No,
}

/// What an instrument loses.
#[derive(Clone, Debug, Serialize)]
pub struct Limit {
    pub instrument: Instrument,
    pub effect: &'static str,
}

/// One line of the table, and what to do about it.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: &'static str,
    pub state: State,
    pub found: String,
    pub limits: Vec<Limit>,
    pub fix: Option<Fix>,
}

/// Below this, one event per probe and thread soon runs out.
const FEW_FILES: u64 = 4096;

impl Instrument {
    /// Its command.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Watch => "watch",
            Self::Lock => "lock",
            Self::Stat => "stat",
        }
    }
}

impl Row {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            found: found.into(),
            limits: Vec::new(),
            fix: None,
        }
    }

    fn lacks(self, state: State, instrument: Instrument, effect: &'static str) -> Self {
        let mut row = Self {
            state: self.state.max(state),
            ..self
        };
        row.limits.push(Limit { instrument, effect });
        row
    }

    fn no(self, instrument: Instrument, effect: &'static str) -> Self {
        self.lacks(State::No, instrument, effect)
    }

    fn part(self, instrument: Instrument, effect: &'static str) -> Self {
        self.lacks(State::Part, instrument, effect)
    }

    fn fix(self, advice: impl Into<String>) -> Self {
        Self {
            fix: Some(Fix::Advice(advice.into())),
            ..self
        }
    }

    fn root_may(self, command: &'static [&'static str]) -> Self {
        Self {
            fix: Some(Fix::Command(command)),
            ..self
        }
    }
}

/// The whole table, what matters most first.
pub fn all(can: &Capabilities, uid: u32) -> Vec<Row> {
    let grant = Grant { root: uid == 0 };
    vec![
        membarrier(can),
        ptrace_scope(can, grant),
        capabilities(can, grant),
        other_users(can, grant),
        process_memory(can, grant),
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

/// How rights are had: by file capabilities, or, for a root without them, from its container.
#[derive(Clone, Copy)]
struct Grant {
    root: bool,
}

impl Grant {
    fn command(self) -> String {
        if self.root {
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

fn membarrier(can: &Capabilities) -> Row {
    let name = "membarrier SYNC_CORE";
    match can.membarrier_sync_core {
        Ok(()) => Row::ok(name, "running code can be patched"),
        Err(e) => Row::ok(name, e.to_string())
            .no(Instrument::Probe, "no in-process probes, only --via kernel")
            .fix("a kernel of 4.16 or later with CONFIG_MEMBARRIER"),
    }
}

fn ptrace_scope(can: &Capabilities, grant: Grant) -> Row {
    let name = "ptrace scope";
    let only_children = "-p works only with --via kernel; `-- CMD` works";
    let free = can.effective.has(Cap::SysPtrace);
    match can.ptrace_scope {
        None => Row::ok(name, "no restriction (no Yama)"),
        Some(0) => Row::ok(name, "0: no restriction"),
        Some(scope @ 1..=2) if free => {
            Row::ok(name, format!("{scope}, overruled by cap_sys_ptrace"))
        }
        Some(1) => Row::ok(name, "1: own children only")
            .part(Instrument::Probe, only_children)
            .root_may(&["sysctl", "kernel.yama.ptrace_scope=0"]),
        Some(2) => Row::ok(name, "2: only with cap_sys_ptrace")
            .no(Instrument::Probe, only_children)
            .fix(grant.command()),
        Some(scope) => Row::ok(
            name,
            format!("{scope}: nobody may attach, until the next boot"),
        )
        .no(Instrument::Probe, only_children)
        .fix("remove kernel.yama.ptrace_scope=3 from /etc/sysctl.d and reboot"),
    }
}

fn capabilities(can: &Capabilities, grant: Grant) -> Row {
    let name = "capabilities";
    let wanted = [
        Cap::SysPtrace,
        Cap::Perfmon,
        Cap::Bpf,
        Cap::CheckpointRestore,
    ];
    // cap_sys_admin is as good as each of them but the first.
    let has =
        |cap| can.effective.has(cap) || cap != Cap::SysPtrace && can.effective.has(Cap::SysAdmin);
    let missing: Vec<_> = wanted.into_iter().filter(|cap| !has(*cap)).collect();
    if missing.is_empty() {
        return Row::ok(name, "all that tracing needs");
    }
    let missing: Vec<_> = missing.into_iter().map(Cap::name).collect();
    Row::ok(name, format!("without {}", missing.join(" ")))
        .part(
            Instrument::Probe,
            "in process, own programs only; no --via kernel",
        )
        .part(Instrument::Watch, "own programs only")
        .part(Instrument::Lock, "no kernel locks")
        .part(Instrument::Stat, "own programs only")
        .fix(grant.command())
}

fn other_users(can: &Capabilities, grant: Grant) -> Row {
    let name = "other users' processes";
    if !can.effective.has(Cap::SysPtrace) {
        return Row::ok(name, "own processes only")
            .part(Instrument::Probe, "-p attaches to your own processes")
            .fix(grant.command());
    }
    if !can.in_first_user_namespace {
        return Row::ok(name, "only those of this user namespace")
            .part(
                Instrument::Probe,
                "-p attaches to those of this user namespace",
            )
            .fix("run tiptoe outside of the user namespace (of the container)");
    }
    if !can.effective.has(Cap::DacOverride) {
        return Row::ok(name, "by the kernel alone (without cap_dac_override)")
            .part(Instrument::Probe, "in process, your own processes only")
            .fix(match grant.root {
                true => "start the container with --cap-add=DAC_OVERRIDE",
                false => "sudo tiptoe",
            });
    }
    Row::ok(name, "cap_sys_ptrace and cap_dac_override")
}

fn process_memory(can: &Capabilities, grant: Grant) -> Row {
    let name = "process_vm_readv";
    match can.process_vm_readv {
        Ok(()) => Row::ok(name, "memory of other processes can be read"),
        Err(e) => Row::ok(name, e.to_string())
            .no(Instrument::Probe, "no attaching to a running process")
            .fix(grant.or(e, "a kernel with CONFIG_CROSS_MEMORY_ATTACH")),
    }
}

fn memfd(can: &Capabilities) -> Row {
    let name = "executable memfd";
    match can.executable_memfd {
        Ok(()) => Row::ok(name, "the agent can enter a process"),
        Err(e) => Row::ok(name, e.to_string())
            .no(Instrument::Probe, "no in-process probes, only --via kernel")
            .root_may(&["sysctl", "vm.memfd_noexec=0"]),
    }
}

fn process_uprobes(can: &Capabilities, grant: Grant) -> Row {
    let name = "kernel uprobes, process";
    match can.process_uprobes {
        Ok(()) => Row::ok(name, "BPF: all threads of a process (--via kernel)"),
        Err(e) => Row::ok(name, e.to_string())
            .no(
                Instrument::Probe,
                "--via kernel misses threads that start later",
            )
            .fix(grant.or(e, "Linux 6.6 or later")),
    }
}

fn thread_uprobes(can: &Capabilities, grant: Grant) -> Row {
    let name = "kernel uprobes, thread";
    match (can.thread_uprobes, can.process_uprobes) {
        (Ok(()), _) => Row::ok(name, "perf events count given threads"),
        (Err(e), Ok(())) => Row::ok(name, format!("not needed beside BPF ({e})")),
        (Err(e), Err(_)) => Row::ok(name, e.to_string())
            .no(Instrument::Probe, "no --via kernel at all")
            .fix(grant.or(e, "a kernel with CONFIG_UPROBE_EVENTS")),
    }
}

fn paranoid(can: &Capabilities, grant: Grant) -> Row {
    let name = "perf_event_paranoid";
    let free = can.effective.has(Cap::Perfmon) || can.effective.has(Cap::SysAdmin);
    match can.perf_event_paranoid {
        None => Row::ok(name, "this kernel has no perf events")
            .no(Instrument::Watch, "no kernel watchpoints")
            .no(Instrument::Stat, "no counters")
            .fix("a kernel with CONFIG_PERF_EVENTS"),
        Some(level) if free => Row::ok(name, format!("{level}, overruled by capabilities")),
        Some(level @ ..=0) => Row::ok(name, format!("{level}: all processes and CPUs")),
        Some(level @ 1..=2) => Row::ok(name, format!("{level}: own processes only"))
            .part(Instrument::Watch, "thread by thread, not per CPU")
            .part(Instrument::Stat, "no system-wide or cgroup counts")
            .fix(grant.command()),
        Some(level) => Row::ok(name, format!("{level}: nothing for ordinary users"))
            .no(Instrument::Watch, "no kernel watchpoints")
            .no(Instrument::Stat, "no counters")
            .fix(grant.command()),
    }
}

fn breakpoints(can: &Capabilities, grant: Grant) -> Row {
    let name = "hardware breakpoints";
    match can.breakpoints {
        Ok(()) => Row::ok(name, "debug registers can be armed"),
        Err(e) => Row::ok(name, e.to_string())
            .no(Instrument::Watch, "no watchpoints")
            .fix(grant.or(e, "end the debugger that holds all debug registers")),
    }
}

fn hardware(can: &Capabilities, grant: Grant) -> Row {
    let name = "hardware PMU";
    match can.hardware_counters {
        Ok(()) => Row::ok(name, "cycles, instructions, cache misses"),
        Err(e) if e.is_permission() => Row::ok(name, e.to_string())
            .no(Instrument::Stat, "no cycles, instructions or cache misses")
            .fix(grant.command()),
        Err(e) => Row::ok(name, format!("this machine shows none ({e})"))
            .no(Instrument::Stat, "no cycles, instructions or cache misses")
            .fix("in a virtual machine: switch its virtual PMU on (KVM: -cpu host,pmu=on)"),
    }
}

fn software(can: &Capabilities, grant: Grant) -> Row {
    let name = "software counters";
    match can.software_counters {
        Ok(()) => Row::ok(name, "CPU time, faults, switches, migrations"),
        Err(e) => Row::ok(name, e.to_string())
            .no(Instrument::Stat, "no counters")
            .fix(grant.or(e, "a kernel with CONFIG_PERF_EVENTS")),
    }
}

fn bpf(can: &Capabilities, grant: Grant) -> Row {
    let name = "BPF programs";
    let kinds = |wanted: bool| {
        let of_state = can.bpf.iter().filter(|(_, check)| check.is_ok() == wanted);
        of_state
            .map(|(kind, _)| kind.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    match can.bpf.iter().find_map(|(_, check)| check.err()) {
        None => Row::ok(name, kinds(true)),
        Some(e) => Row::ok(name, format!("refused: {e}; not {}", kinds(false)))
            .no(
                Instrument::Watch,
                "no aggregation at the hit, costlier watchpoints",
            )
            .no(Instrument::Lock, "no kernel locks, no static programs")
            .no(
                Instrument::Stat,
                "perf's own cgroup mode, ten times the cost",
            )
            .fix(grant.or(e, "a kernel with CONFIG_BPF_SYSCALL")),
    }
}

fn btf(can: &Capabilities) -> Row {
    let name = "BTF";
    match can.btf {
        Ok(()) => Row::ok(name, "/sys/kernel/btf/vmlinux"),
        Err(e) => Row::ok(name, e.to_string())
            .no(Instrument::Lock, "no kernel locks, no static programs")
            .no(Instrument::Stat, "perf's own cgroup mode")
            .fix("a kernel with CONFIG_DEBUG_INFO_BTF"),
    }
}

fn tracefs(can: &Capabilities) -> Row {
    let name = "tracefs";
    let row = match &can.tracefs {
        Tracefs::Readable(root) => return Row::ok(name, root.display().to_string()),
        Tracefs::NotMounted => Row::ok(name, "not mounted").root_may(&[
            "mount",
            "-t",
            "tracefs",
            "tracefs",
            "/sys/kernel/tracing",
        ]),
        Tracefs::Unreadable(root) => {
            Row::ok(name, format!("closed to this user: {}", root.display())).fix(format!(
                "sudo mount -o remount,mode=755 {}",
                ShellWord(root.as_os_str().as_bytes())
            ))
        }
    };
    row.part(
        Instrument::Probe,
        "uprobes that others define there are not seen",
    )
    .no(Instrument::Lock, "no kernel locks, no futex tracepoints")
    .part(Instrument::Stat, "no tracepoints")
}

fn cgroups(can: &Capabilities) -> Row {
    let name = "cgroups";
    let found = can.cgroups.describe();
    match (&can.cgroups.v2, &can.cgroups.v1_perf_event) {
        (Some(_), _) => Row::ok(name, found),
        (None, Some(_)) => Row::ok(name, found)
            .part(Instrument::Stat, "version 1's perf_event hierarchy only")
            .fix("boot with systemd.unified_cgroup_hierarchy=1"),
        (None, None) => Row::ok(name, found)
            .no(Instrument::Stat, "no counts by cgroup")
            .root_may(&["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"]),
    }
}

/// Calls that only newer kernels have; nothing needs them.
fn system_call(name: &'static str, check: Check) -> Row {
    match check {
        Ok(()) => Row::ok(name, "known to this kernel"),
        Err(e) => Row {
            state: State::Part,
            ..Row::ok(name, format!("{e}; nothing depends on it"))
        },
    }
}

fn open_files(can: &Capabilities) -> Row {
    let name = "open files";
    let limit = can.open_files;
    let found = format!("{}, up to {}", limit.soft, limit.hard);
    if limit.hard >= FEW_FILES || can.effective.has(Cap::SysResource) {
        return Row::ok(name, found);
    }
    Row::ok(name, found)
        .part(Instrument::Watch, "few threads times variables")
        .fix("ulimit -Hn 1048576, as root, before tiptoe")
}

fn pid_namespace(can: &Capabilities) -> Row {
    let name = "pid namespace";
    if can.sees_all_processes {
        return Row::ok(name, "the first: every process is visible");
    }
    Row::ok(name, "a container's: its own processes only")
        .part(Instrument::Stat, "no system-wide names")
        .fix("start the container with --pid=host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_it_limits_and_how_to_get_it() {
        for row in all(Capabilities::get(), 1000) {
            assert_eq!(row.limits.is_empty(), row.fix.is_none(), "{row:?}");
            assert!(row.state != State::Ok || row.limits.is_empty(), "{row:?}");
        }
    }

    #[test]
    fn permissions_are_granted_to_the_file_or_by_the_container() {
        let denied = Refusal {
            call: "bpf",
            errno: 1,
        };
        let absent = Refusal {
            call: "bpf",
            errno: 38,
        };
        let granted = Grant { root: false }.or(denied, "x");
        assert!(granted.contains("setcap") && granted.contains("chmod 0750"));
        assert!(granted.ends_with(SETCAP_GRANTS), "{granted}");
        assert!(Grant { root: true }.or(denied, "x").contains("--cap-add"));
        assert_eq!(Grant { root: true }.or(absent, "x"), "x");
    }
}
