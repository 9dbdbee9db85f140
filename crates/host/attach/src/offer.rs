//! The segments for a command that is about to start.

use std::os::fd::{AsRawFd, OwnedFd};

use tiptoe_wire::{Geometry, Plan as PlanSegment, descriptors::seals};

use crate::end_check;
use crate::error::AttachError;
use crate::link::{Link, Terms};
use crate::preload;
use crate::resident::AgentFile;

/// Fresh segments, whose descriptors the program inherits.
pub struct Offer {
    geometry: Geometry,
    data: OwnedFd,
    plan: OwnedFd,
}

impl Offer {
    /// Makes fresh segments.
    pub fn new(geometry: Geometry) -> Result<Offer, AttachError> {
        let fresh = |name, len| preload::memfd(name, len).map_err(AttachError::SharedMemory);
        Ok(Offer {
            geometry,
            data: fresh(c"tiptoe-data", geometry.data_bytes())?,
            plan: fresh(c"tiptoe-plan", PlanSegment::FILE_BYTES)?,
        })
    }

    /// Returns the link to the future agent, and seals the segments.
    pub fn open(&self, terms: &Terms, process: u32) -> Result<Link, AttachError> {
        let copies = self
            .data
            .try_clone()
            .and_then(|data| Ok((data, self.plan.try_clone()?)));
        let linked = copies.and_then(|(data, plan)| {
            let link = Link::new(data, plan, self.geometry, terms, end_check(process))?;
            preload::seal(self.plan.as_raw_fd(), seals::PLAN)?;
            preload::seal(self.data.as_raw_fd(), seals::DATA)?;
            Ok(link)
        });
        linked.map_err(AttachError::SharedMemory)
    }

    /// Returns the descriptors that the program inherits, with the agent's key.
    pub fn passed(&self, agent: &[u8]) -> Result<preload::AgentDescriptors, AttachError> {
        let key = AgentFile::parse(agent)?.key;
        preload::AgentDescriptors::new(agent, key, &self.data, &self.plan)
            .map_err(AttachError::SharedMemory)
    }
}
