//! Where trampolines may be put.

use std::collections::BTreeMap;
use std::ops::Range;

use tiptoe_patch::{ARENA_LEN, Space, UsedArena};
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_sys::host::random;
use tiptoe_wire::{Site, arena};

/// How far below a stack nothing is put, for it to grow.
const STACK_ROOM: u64 = 128 << 20;
/// The end of a process's own addresses: the kernel maps nothing between this one and its vsyscall page.
const TOP: u64 = (1 << 47) - 4096;

/// Where arenas may be: the gaps between mappings. Where the heap would grow is
/// the last resort, and below a stack nothing is put at all.
pub(super) fn space(maps: &[Mapping], known: &[Site]) -> Space {
    let [seed] = random::words();
    let mut space = Space {
        arenas: arenas_of(known),
        seed,
        ..Space::default()
    };
    let mut end = 0x1_0000;
    let mut above_heap = false;
    for mapping in maps {
        let path = mapping.path.as_deref().and_then(|path| path.to_str());
        let is_stack = path == Some("[stack]");
        let top = if is_stack {
            mapping.start.saturating_sub(STACK_ROOM)
        } else {
            mapping.start.min(TOP)
        };
        if top > end {
            let gap = end..top;
            match above_heap {
                true => space.last_resort.push(gap),
                false => space.preferred.push(gap),
            }
        }
        end = end.max(mapping.end);
        above_heap = path == Some("[heap]") || is_program_end(maps, mapping);
    }
    space
}

/// Whether the heap begins behind this mapping: the last of the program's own,
/// which is the first file in the list, where there is no heap yet.
fn is_program_end(maps: &[Mapping], mapping: &Mapping) -> bool {
    let has_heap = maps
        .iter()
        .any(|m| m.path.as_deref().is_some_and(|p| p.as_os_str() == "[heap]"));
    let program = maps.iter().find(|m| m.inode != 0).map(|m| (m.dev, m.inode));
    let last = maps.iter().rfind(|m| Some((m.dev, m.inode)) == program);
    !has_heap && last.is_some_and(|last| mapping.start >= last.start && mapping.start <= last.end)
}

fn arenas_of(known: &[Site]) -> Vec<UsedArena> {
    let mut arenas: BTreeMap<u64, Vec<Range<u64>>> = BTreeMap::new();
    for site in known {
        let base = site.trampoline & !(ARENA_LEN - 1);
        let code = site.trampoline..site.trampoline + u64::from(site.code_len);
        let told = base + u64::from(site.told) * arena::UNIT;
        let told = told..told + u64::from(site.told_len) * arena::UNIT;
        arenas.entry(base).or_default().extend([code, told]);
    }
    arenas
        .into_iter()
        .map(|(base, used)| UsedArena { base, used })
        .collect()
}
