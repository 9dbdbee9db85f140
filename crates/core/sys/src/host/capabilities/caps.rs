//! Capabilities as in capabilities(7).

use std::prelude::rust_2024::*;

use std::fmt;

/// The command that gives tiptoe its rights. Only members of a group may then run the file, because these rights
/// suffice to trace every process, even root's. setcap(8) must come after chown(1), which removes capabilities.
pub const SETCAP: &str = "sudo sh -c 'groupadd -f tiptoe && chown root:tiptoe \"$0\" && chmod 0750 \"$0\" && setcap \
    cap_bpf,cap_checkpoint_restore,cap_perfmon,cap_sys_ptrace+ep \"$0\"' \"$(command -v tiptoe)\"";

/// What [`SETCAP`] grants.
pub const SETCAP_GRANTS: &str =
    "members of the group tiptoe may then read and trace every process, root's too";

/// The capabilities that matter to tracing, by kernel number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cap {
    /// Write other users' files, such as their processes' memory in /proc.
    DacOverride = 1,
    /// Trace other users' processes.
    SysPtrace = 19,
    /// Do nearly everything, such as uprobes through perf_event_open.
    SysAdmin = 21,
    /// Raise resource limits.
    SysResource = 24,
    /// Use perf events despite `perf_event_paranoid`.
    Perfmon = 38,
    /// Load BPF programs.
    Bpf = 39,
    /// Open files that other processes have mapped.
    CheckpointRestore = 40,
}

impl Cap {
    /// All capabilities, by number.
    pub const ALL: [Self; 7] = [
        Self::DacOverride,
        Self::SysPtrace,
        Self::SysAdmin,
        Self::SysResource,
        Self::Perfmon,
        Self::Bpf,
        Self::CheckpointRestore,
    ];

    /// Returns the name in setcap(8).
    pub fn name(self) -> &'static str {
        match self {
            Self::DacOverride => "cap_dac_override",
            Self::SysPtrace => "cap_sys_ptrace",
            Self::SysAdmin => "cap_sys_admin",
            Self::SysResource => "cap_sys_resource",
            Self::Perfmon => "cap_perfmon",
            Self::Bpf => "cap_bpf",
            Self::CheckpointRestore => "cap_checkpoint_restore",
        }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of capabilities, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapSet(pub u64);

impl CapSet {
    /// Returns whether a capability is in the set.
    pub fn has(self, cap: Cap) -> bool {
        self.0 >> (cap as u8) & 1 == 1
    }

    /// Returns the members among [`Cap::ALL`].
    pub fn members(self) -> Vec<Cap> {
        Cap::ALL.into_iter().filter(|cap| self.has(*cap)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        let set = CapSet(1 << 19 | 1 << 38);
        assert_eq!(set.members(), [Cap::SysPtrace, Cap::Perfmon]);
        assert!(!set.has(Cap::SysAdmin));
        assert_eq!(CapSet(0).members(), []);
    }
}
