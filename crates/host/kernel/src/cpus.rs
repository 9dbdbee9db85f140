//! The CPUs of this machine.

use crate::Error;

pub(crate) fn online_cpus() -> Result<Vec<u32>, Error> {
    aya::util::online_cpus().map_err(|(_, source)| Error::Io {
        what: "list the CPUs that are online".into(),
        source,
    })
}
