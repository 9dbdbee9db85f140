//! The case `kernel_uretprobe`: the kernel's return probes, as perf events on the benched thread. tiptoe itself never
//! uses them, because an exception that passes such a probe crashes the program. The benched functions throw none.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use tiptoe_symbol::{Image, NoDebugFiles};
use tiptoe_sys::host::perf::{CountedOn, PerfEvent, Uprobe, uprobe_pmu};

use crate::assembly::Site;
use crate::error::Error;
use crate::target::Target;

#[derive(Debug)]
pub(super) struct KernelReturns(Vec<PerfEvent>);

impl KernelReturns {
    pub(super) fn arm(target: &Target, sites: &[Site]) -> Result<KernelReturns, Error> {
        let path = target.program();
        let failed = |error| Error::Io {
            what: "arming a return probe of the kernel's",
            error,
        };
        let bytes = std::fs::read(&path).map_err(failed)?;
        let image = Image::parse(&bytes.into(), &NoDebugFiles).map_err(|e| failed(invalid(e)))?;
        let pmu = uprobe_pmu().ok_or_else(|| failed(std::io::ErrorKind::Unsupported.into()))?;
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| failed(e.into()))?;
        let mut events = Vec::new();
        for site in sites {
            let functions = image.find(&format!("{}_at*", site.name));
            for function in functions.map_err(|e| failed(invalid(e)))? {
                let probe = Uprobe {
                    pmu,
                    path: &path,
                    offset: function.offset_in_file,
                };
                let event = PerfEvent::open_uretprobe(&probe, CountedOn::Thread(target.pid()));
                events.push(event.map_err(failed)?);
            }
        }
        Ok(KernelReturns(events))
    }

    pub(super) fn finish(self) -> Result<u64, Error> {
        let counts = self.0.iter().map(|event| Ok(event.read()?.count));
        counts
            .sum::<std::io::Result<u64>>()
            .map_err(|error| Error::Io {
                what: "reading a return probe of the kernel's",
                error,
            })
    }
}

fn invalid(error: tiptoe_symbol::Error) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, error)
}
