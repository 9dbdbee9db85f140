use crate::Error;

pub(crate) fn online_cpus() -> Result<Vec<u32>, Error> {
    let cpus = aya::util::online_cpus();
    cpus.map_err(|(_, source)| Error::io("list the CPUs that are online")(source))
}
