//! Other tools that show contention: preloaded libraries that replace the lock functions. Each library needs a process
//! of its own, because it cannot be unloaded.

use std::path::PathBuf;

use crate::error::Error;
use crate::workshop::{Program, Workshop};

/// LTTng's library for locks, used without a tracing session.
const LTTNG: [&str; 2] = [
    "liblttng-ust-pthread-wrapper.so.1",
    "liblttng-ust-pthread-wrapper.so.0",
];
const MUTRACE: [&str; 1] = ["libmutrace.so"];
const FOLDERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];

pub(super) struct PreloadedProgram {
    pub(super) case: &'static str,
    pub(super) program: Program,
}

pub(super) fn all(
    workshop: &Workshop,
) -> Result<(Vec<PreloadedProgram>, Vec<&'static str>), Error> {
    let built = [
        ("try_first", include_str!("try_first.c")),
        ("timed", include_str!("timed.c")),
    ];
    let mut libraries = Vec::new();
    for (case, source) in built {
        libraries.push((case, Some(workshop.library(case, source)?)));
    }
    libraries.push(("lttng_wrapper", installed(&LTTNG)));
    libraries.push(("mutrace", installed(&MUTRACE)));
    let (mut others, mut missing) = (Vec::new(), Vec::new());
    for (case, library) in libraries {
        match library {
            Some(library) => others.push(PreloadedProgram {
                case,
                program: workshop.start(Some(&library))?,
            }),
            None => missing.push(case),
        }
    }
    Ok((others, missing))
}

fn installed(names: &[&str]) -> Option<PathBuf> {
    let places = FOLDERS.iter().flat_map(|folder| {
        let folder = PathBuf::from(folder);
        names.iter().map(move |name| folder.join(name))
    });
    places.into_iter().find(|path| path.exists())
}
