//! Finds room for the injected code ([`stub`]) and for its home (two pages that stay mapped).

use std::mem::offset_of;

use tiptoe_sys::host::procfs::Mapping;
use tiptoe_sys::host::random;

use super::process::Process;
use super::stub::{self, MAGIC, Mailbox, PAGE, departure};
use super::{mapped_files, unwind};
use crate::error::inject_error::InjectError;
use crate::target_files::content;

/// Unused bytes after a text segment, on the segment's last page.
#[derive(Clone, Debug)]
pub(super) struct Cave {
    pub address: u64,
    pub page: u64,
}

/// Finds a cave in a file that `dlclose` never unmaps. The process must not have changed the cave's page, because
/// the stub restores the page by dropping the process's private copy.
pub(super) fn find(
    process: &Process,
    mappings: &[Mapping],
    loader: u64,
) -> Result<Cave, InjectError> {
    let program = program(process, mappings);
    let needed = program
        .and_then(|text| process.open_file(text).ok())
        .and_then(|file| mapped_files::needed(&content(file).ok()?))
        .unwrap_or_default();
    let stays = |text: &&Mapping| {
        unwind::is_libc(text)
            || program.is_some_and(|program| program.same_file(text))
            || mappings
                .iter()
                .any(|first| first.start == loader && first.same_file(text))
            || needed.iter().any(|needed| unwind::is_named(text, needed))
    };
    let texts = mappings.iter().filter(|mapping| mapping.is_text());
    texts
        .filter(stays)
        .filter_map(|text| cave_after(process, text))
        .find(|cave| process.is_clean(cave.page).unwrap_or(false))
        .ok_or(InjectError::NoCave { pid: process.pid })
}

fn program<'a>(process: &Process, mappings: &'a [Mapping]) -> Option<&'a Mapping> {
    let entry = process.auxv(libc::AT_ENTRY)?;
    mappings
        .iter()
        .find(|text| text.is_text() && text.start <= entry && entry < text.end)
}

fn cave_after(process: &Process, text: &Mapping) -> Option<Cave> {
    let content = content(process.open_file(text).ok()?).ok()?;
    let segments = mapped_files::segments(&content)?;
    let shown = text.offset..text.offset + (text.end - text.start);
    let end = segments
        .iter()
        .filter(|segment| segment.is_executable)
        .map(|segment| segment.file.end)
        .find(|end| shown.contains(end) && shown.end - end < PAGE)?;
    let address = (text.start + (end - text.offset)).next_multiple_of(16);
    let room = text.end.checked_sub(address)?;
    (room >= stub::len() as u64).then_some(Cave {
        address,
        page: text.end - PAGE,
    })
}

/// Returns a random unmapped address in the upper half of the largest gap, far from a growing heap.
pub(super) fn free_address(mappings: &[Mapping]) -> Option<u64> {
    // The distance to keep from the gap's end, where the kernel maps new threads' heaps and stacks.
    const NEAR: u64 = 16 << 30;
    let gaps = mappings.windows(2).map(|pair| (pair[0].end, pair[1].start));
    let user = gaps.filter(|(_, end)| *end < 1 << 47);
    let (start, end) = user.max_by_key(|(start, end)| end.saturating_sub(*start))?;
    let (low, high) = (start.midpoint(end), end.saturating_sub(NEAR));
    let [random] = random::words();
    (low < high).then(|| (low + random % (high - low)) & !(PAGE - 1))
}

/// Returns a home of an earlier injection that its thread has left.
pub(super) fn old_home(process: &Process, mappings: &[Mapping]) -> Option<u64> {
    homes(process, mappings).find(|home| match departure_of(process, *home) {
        departure::RETURNED => true,
        departure::RETURNING => !has_living_thread(process, *home),
        _ => false,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HomeOccupant {
    Thread,
    /// A thread may be about to arrive. Or no thread will arrive, because tiptoe died before it sent the thread, or
    /// because a fork copied only the home.
    Unknown,
}

/// Returns an occupant that may still load an agent: a living thread if there is one, otherwise an unknown occupant.
pub(super) fn occupant(process: &Process, mappings: &[Mapping]) -> Option<HomeOccupant> {
    let occupied = homes(process, mappings).filter(|home| departure_of(process, *home) == 0);
    let occupants = occupied.map(|home| match has_living_thread(process, home) {
        true => HomeOccupant::Thread,
        false => HomeOccupant::Unknown,
    });
    occupants.min_by_key(|occupant| *occupant as u8)
}

fn has_living_thread(process: &Process, home: u64) -> bool {
    let tid = process.read_u64(home + PAGE + offset_of!(Mailbox, tid) as u64);
    tid.is_ok_and(|tid| tid != 0 && process.proc(&format!("task/{tid}")).exists())
}

fn homes(process: &Process, mappings: &[Mapping]) -> impl Iterator<Item = u64> {
    let pairs = mappings.windows(2).filter(|pair| {
        pair[0].has_perms(b"r-xp")
            && pair[0].inode == 0
            && pair[0].end - pair[0].start == PAGE
            && pair[1].has_perms(b"rw-p")
            && pair[1].start == pair[0].end
    });
    pairs.map(|pair| pair[0].start).filter(|home| {
        let mut magic = [0; MAGIC.len()];
        process.read(*home, &mut magic).is_ok() && magic == MAGIC
    })
}

/// Returns the last thread's `departure`; 0 while the home is in use.
fn departure_of(process: &Process, home: u64) -> u32 {
    let left = home + PAGE + offset_of!(Mailbox, left) as u64;
    process.read_u32(left).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a subtraction overflowed.
    #[test]
    fn a_program_whose_only_gap_is_low_has_no_free_address() {
        let free = |lines: [&str; 2]| {
            free_address(&Mapping::parse_all(lines.join("\n").as_bytes()).expect("two lines"))
        };
        let first = "10000-20000 r--p 00000000 00:00 0";
        let low = free([first, "200000000-7fffffffe000 ---p 00000000 00:00 0"]);
        assert_eq!(low, None);
        let usual = free([
            first,
            "7f0000000000-7f0000001000 r-xp 00000000 08:01 7 /lib/a.so",
        ]);
        assert!(usual.is_some_and(|at| (1 << 45..0x7f00_0000_0000).contains(&at)));
    }
}
