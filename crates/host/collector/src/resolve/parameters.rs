//! Reads how many parameters each function with recorded calls has.

use super::{Probe, Resolution};
use crate::planner::Follow;

impl Resolution {
    /// Must be called before the probes are installed. Reading may take a second, in which tiptoe fetches no recorded
    /// calls, so calls would be lost. Must not be called for libraries that are loaded later, because the loading
    /// thread waits for the probes.
    pub fn read_parameters(&self) {
        let all = self.probes.iter().chain(&self.ifuncs);
        let is_recorded = |probe: &&Probe| probe.follow == Follow::Record && probe.offset == 0;
        for probe in all.filter(is_recorded) {
            probe.object.parameter_registers(&probe.function);
        }
    }
}

#[cfg(test)]
mod tests {
    use tiptoe_sys::host::procfs::Process;

    use super::*;
    use crate::module::Cache;
    use crate::resolve::{later, resolve};
    use tiptoe_event::ProbeSpec;

    /// Regression: the first calls of each function were lost.
    #[test]
    fn parameters_were_read_after_the_install() {
        let own = Process::current();
        let maps = own.maps().expect("our own maps");
        let modules = Cache::default().modules(own, &maps).expect("our own files");
        let specs = [ProbeSpec::parse("uprobe:libc.so.6:getppid").expect("a probe")];
        let has_read = |entries| {
            let found = resolve(&specs, entries, own, &modules, false).expect("it is there");
            found.probes[0].object.has_read()[0]
        };
        assert!(!has_read(Follow::No));
        assert!(has_read(Follow::Record));
    }

    /// Regression: a loading thread gave up waiting, and ran the library unprobed.
    #[test]
    fn debug_information_was_read_while_a_thread_waited() {
        let own = Process::current();
        let maps = own.maps().expect("our own maps");
        let modules = Cache::default().modules(own, &maps).expect("our own files");
        let specs = [ProbeSpec::parse("uprobe:libc.so.6:getppid").expect("a probe")];
        let found = later(&specs, Follow::Record, own, &modules);
        assert_eq!(found.probes[0].object.has_read(), [false, false]);
    }
}
