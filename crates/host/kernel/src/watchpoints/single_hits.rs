//! Single hits.

use std::fmt;

use aya::Ebpf;
use aya::maps::{MapData, RingBuf};

use super::{Access, watch_layout};
use crate::Error;
use crate::programs::no_part;
use crate::refusal::bpf_refusal;

pub(super) const MAP: &str = "accesses";
/// The ring's size if single hits are not requested, because the kernel refuses an empty ring.
pub(super) const LEAST: u32 = 4096;

pub(super) struct HitRing(RingBuf<MapData>);

impl HitRing {
    pub(super) fn take(bpf: &mut Ebpf) -> Result<HitRing, Error> {
        let map = bpf.take_map(MAP).ok_or_else(|| no_part(MAP))?;
        let ring = RingBuf::try_from(map);
        ring.map(HitRing)
            .map_err(|error| bpf_refusal("read the accesses one by one", &error))
    }

    pub(super) fn read(&mut self) -> Vec<Access> {
        let mut hits = Vec::new();
        while let Some(bytes) = self.0.next() {
            hits.extend(watch_layout::access(&bytes));
        }
        hits
    }
}

impl fmt::Debug for HitRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HitRing")
    }
}
