//! Hits one by one.

use std::fmt;

use aya::Ebpf;
use aya::maps::{MapData, RingBuf};

use super::{Access, layout};
use crate::Error;
use crate::programs::no_part;
use crate::refusal::bpf_refusal;

/// The ring's name, and its bytes where nothing comes: it cannot have none.
pub(super) const MAP: &str = "accesses";
pub(super) const LEAST: u32 = 4096;

/// The ring that the program writes hits to.
pub(super) struct Each(RingBuf<MapData>);

impl Each {
    pub(super) fn take(bpf: &mut Ebpf) -> Result<Each, Error> {
        let map = bpf.take_map(MAP).ok_or_else(|| no_part(MAP))?;
        let ring = RingBuf::try_from(map);
        ring.map(Each)
            .map_err(|error| bpf_refusal("read the accesses one by one", &error))
    }

    /// What came since the last time.
    pub(super) fn read(&mut self) -> Vec<Access> {
        let mut hits = Vec::new();
        while let Some(bytes) = self.0.next() {
            hits.extend(layout::access(&bytes));
        }
        hits
    }
}

impl fmt::Debug for Each {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Each")
    }
}
