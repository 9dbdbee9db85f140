use std::prelude::rust_2024::*;

use std::io;
use std::os::fd::AsRawFd;

use super::{Attr, CountedOn, PerfEvent};

impl PerfEvent {
    /// Opens a leader, or an event in a leader's group, which counts together or not at all.
    pub fn open_in(attr: Attr, on: CountedOn, leader: Option<&PerfEvent>) -> io::Result<Self> {
        Self::open_with_leader(attr, on, leader.map(|leader| leader.0.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{abi, attr};
    use super::*;

    #[test]
    fn a_group_counts_while_its_leader_is_on() {
        let clock = attr(abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_TASK_CLOCK);
        let mut off = clock;
        off.set_disabled(1);
        let leader = match PerfEvent::open_in(off, CountedOn::Thread(0), None) {
            Ok(event) => event,
            Err(e) => return crate::skipped::skipped("perf_event_open", &std::format!("{e}")),
        };
        let member = PerfEvent::open_in(clock, CountedOn::Thread(0), Some(&leader)).unwrap();
        let read = || (leader.read().unwrap().count, member.read().unwrap().count);
        assert_eq!(read(), (0, 0));
        leader.enable().unwrap();
        let (one, two) = read();
        assert!(one > 0 && two > 0);
        leader.disable().unwrap();
        assert_eq!(read(), read());
    }
}
