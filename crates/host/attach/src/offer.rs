//! The shared memory for a command that is about to start with the agent (tiptoe's library).

use std::os::fd::OwnedFd;

use tiptoe_wire::{Geometry, Plan as PlanSegment, descriptors::seals};

use crate::end_check;
use crate::error::AttachError;
use crate::link::{Link, Terms};
use crate::memfd::{memfd, seal};
use crate::preload;
use crate::resident::AgentFile;

/// Fresh data and plan segments, whose descriptors the program inherits.
pub struct Offer {
    geometry: Geometry,
    data: OwnedFd,
    plan: OwnedFd,
}

impl Offer {
    /// Makes fresh segments.
    pub fn new(geometry: Geometry) -> Result<Offer, AttachError> {
        let fresh = |name, len| memfd(name, len).map_err(AttachError::SharedMemory);
        Ok(Offer {
            geometry,
            data: fresh(c"tiptoe-data", geometry.data_bytes())?,
            plan: fresh(c"tiptoe-plan", PlanSegment::FILE_BYTES)?,
        })
    }

    /// Returns the link to the future agent, and seals the segments.
    pub fn open(&self, terms: &Terms, process: u32) -> Result<Link, AttachError> {
        let open = || {
            let (data, plan) = (self.data.try_clone()?, self.plan.try_clone()?);
            let link = Link::new(data, plan, self.geometry, terms, end_check(process))?;
            seal(&self.plan, seals::PLAN)?;
            seal(&self.data, seals::DATA)?;
            Ok(link)
        };
        open().map_err(AttachError::SharedMemory)
    }

    /// Returns the descriptors that the program inherits, with the agent's key.
    pub fn passed(&self, agent: &[u8]) -> Result<preload::AgentDescriptors, AttachError> {
        let key = AgentFile::parse(agent)?.key;
        preload::AgentDescriptors::new(agent, key, &self.data, &self.plan)
            .map_err(AttachError::SharedMemory)
    }
}
