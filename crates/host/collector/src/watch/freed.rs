//! Notices that an object watched by address or through a pointer may have been freed.
//!
//! Only the allocator knows where objects begin and end, and it reports nothing. But the allocator writes its lists
//! into freed objects, or into memory that it is about to return, and never into a live object.

use tiptoe_session::{Accesses, Note, WatchNote};

use super::variables::WatchedVariable;

const FUNCTIONS: [&str; 11] = [
    "free",
    "cfree",
    "realloc",
    "reallocarray",
    "malloc",
    "calloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "operator delete",
    "operator new",
];
/// Prefixes of the names in glibc, jemalloc, tcmalloc and mimalloc.
const PREFIXES: [&str; 5] = ["", "__libc_", "je_", "tc_", "mi_"];

pub(super) fn note(place: &WatchedVariable, rows: &[Accesses]) -> Option<Note> {
    let name = Some(&place.name).filter(|_| place.is_object)?;
    let mine = rows.iter().filter(|row| row.variable == *name);
    let found = mine.filter_map(|row| Some((row.first_ns, allocator(row)?)));
    let (after_ns, function) = found.min()?;
    let note = WatchNote::Freed {
        variable: name.clone(),
        function: function.to_owned(),
        after_ns,
    };
    Some(note.into())
}

/// Returns the outermost function of the allocator among an access's callers.
fn allocator(row: &Accesses) -> Option<&str> {
    let callers = row
        .stacks
        .iter()
        .flat_map(|stack| stack.callers.iter().rev());
    let mut functions = callers.chain([&row.at]).map(|place| function(place));
    functions.find(|name| {
        let plain = name.split_once('(').map_or(*name, |(plain, _)| plain);
        let plain = plain.trim_end_matches("[]");
        let mut prefixes = PREFIXES
            .iter()
            .filter_map(|prefix| plain.strip_prefix(prefix));
        prefixes.any(|rest| FUNCTIONS.contains(&rest))
    })
}

/// Returns the function of `BINARY:FUNCTION+0x12 (FILE:LINE)`.
fn function(place: &str) -> &str {
    let name = place.split_once(':').map_or(place, |(_, name)| name);
    name.split_once("+0x").map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_session::Stack;

    #[test]
    fn allocators_are_known_by_their_functions() {
        let of = |at: &str, callers: &[&str]| {
            let stack = Stack {
                callers: callers.iter().map(|one| one.to_string()).collect(),
                ..Stack::default()
            };
            let row = Accesses {
                at: at.to_owned(),
                stacks: vec![stack],
                ..Accesses::default()
            };
            allocator(&row).map(str::to_owned)
        };
        let is =
            |at, callers: &[&str], name: &str| assert_eq!(of(at, callers).as_deref(), Some(name));
        is("libc.so.6:free+0x1f", &["x:main+0x12 (x.c:3)"], "free");
        is(
            "libc.so.6:0x9a1c0",
            &["libc.so.6:free+0x73", "x:main+0x12"],
            "free",
        );
        is(
            "libc.so.6:memset+0x73",
            &["libc.so.6:calloc+0x73", "x:f+0x12"],
            "calloc",
        );
        is("x:je_arena_dalloc+0x3", &["x:je_free+0x1"], "je_free");
        is(
            "libc.so.6:0x9a1c0",
            &[
                "libc.so.6:free+0x73",
                "libstdc++.so.6:operator delete[](void*)+0x9",
            ],
            "operator delete[](void*)",
        );
        for at in ["x:set_free+0x3", "x:main+0x3 (free.c:12)", "x:carefree+0x1"] {
            assert_eq!(of(at, &["x:main+0x1"]), None, "{at}");
        }
    }
}
