//! A load whose threads contend for their process's mmap_lock.

use crate::build::BuildCost;
use crate::error::Error;
use crate::options::Options;
use crate::workshop::{Program, Workshop};

const PROGRAM: &str = include_str!("faults.c");
const PER_CPU: u32 = 4;
/// How many mappings each thread makes for each requested ms.
const PER_MS: u32 = 250;

pub(super) struct FaultLoad {
    program: Program,
    threads: u32,
    mappings: u32,
    _workshop: Workshop,
}

impl FaultLoad {
    pub(super) fn start(options: &Options) -> Result<FaultLoad, Error> {
        let workshop = Workshop::new("faults", PROGRAM)?;
        Ok(FaultLoad {
            program: workshop.start(None)?,
            threads: PER_CPU * crate::together::cpus(),
            mappings: PER_MS * options.ms,
            _workshop: workshop,
        })
    }

    pub(super) fn run(&mut self) -> Result<BuildCost, Error> {
        let question = format!("faults {} {}", self.threads, self.mappings);
        Ok(BuildCost {
            seconds: self.program.ask(&question)?,
            cpu: self.program.ask("cpu")?,
        })
    }

    pub(super) fn about(&self) -> String {
        let (threads, mappings) = (self.threads, self.mappings);
        format!(
            "{threads} threads of one process, each of which maps, touches and unmaps 16 pages {mappings} times"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_answers_with_times() {
        let options = Options {
            ms: 1,
            ..Options::new(&[])
        };
        let mut load = FaultLoad::start(&options).expect("cc is installed");
        let took = load.run().expect("an answer");
        assert!(took.seconds > 0.0 && took.cpu > 0.0);
    }
}
