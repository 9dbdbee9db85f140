//! Finds room for trampolines, the generated code to which patches jump.

use std::collections::BTreeMap;
use std::ops::Range;

use tiptoe_patch::{ARENA_LEN, Space, UsedArena};
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_sys::host::random;
use tiptoe_wire::{Site, arena};

use super::ProcessState;

/// This room below a stack must stay free, so that the stack can grow.
const STACK_ROOM: u64 = 128 << 20;
/// This room below mappings is used last, because the kernel puts the program's next mappings there.
const NEXT_ROOM: u64 = 256 << 20;
/// The kernel maps nothing between this address and its vsyscall page.
const TOP: u64 = (1 << 47) - 4096;

/// Returns where arenas (memory for trampolines) may be. Existing arenas can be written only if this session mapped
/// them.
pub(super) fn space(state: &ProcessState) -> Space {
    let [seed] = random::words();
    let mut arenas = arenas_of(state.agent_sites);
    arenas.retain(|arena| state.mapped.iter().any(|range| range.contains(&arena.base)));
    Space {
        arenas,
        seed,
        mapped: state.mapped.clone(),
        callers: state.callers.to_vec(),
        ..gaps(state.maps)
    }
}

/// Returns the gaps between mappings, where arenas may be. The last resort is where the program may map something soon:
/// where the heap grows, and where the kernel puts new mappings. The kernel fills the highest gap that is long enough,
/// from its end downwards.
fn gaps(maps: &[Mapping]) -> Space {
    let mut space = Space::default();
    let mut end = 0x1_0000;
    let (mut is_above_heap, mut is_mapped_into) = (false, false);
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
            if is_above_heap {
                let middle = end + (top - end) / 2;
                let next = top.saturating_sub(NEXT_ROOM).max(middle);
                space.last_resort.extend([end..middle, next..top]);
                space.preferred.push(middle..next);
                is_mapped_into = true;
            } else if is_mapped_into && !is_stack {
                space.last_resort.push(gap);
            } else {
                space.preferred.push(gap);
            }
        }
        end = end.max(mapping.end);
        is_above_heap = path == Some("[heap]") || is_program_end(maps, mapping);
    }
    space
}

/// Returns whether the heap begins after this mapping. If there is no heap yet, it will begin after
/// the program's last mapping; the program is the first file in the list.
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
        let unwind = base + u64::from(site.unwind) * arena::UNIT;
        let unwind = unwind..unwind + u64::from(site.unwind_len) * arena::UNIT;
        arenas.entry(base).or_default().extend([code, unwind]);
    }
    arenas
        .into_iter()
        .map(|(base, used)| UsedArena { base, used })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The third mapping is a thread's stack.
    fn maps() -> Vec<Mapping> {
        let of = |start, end, inode, path: &str| Mapping {
            start,
            end,
            inode,
            path: (!path.is_empty()).then(|| path.into()),
            ..Mapping::default()
        };
        vec![
            of(0x5555_5555_4000, 0x5555_5555_8000, 7, "/bin/program"),
            of(0x5555_5556_0000, 0x5555_5558_1000, 0, "[heap]"),
            of(0x7fff_f300_0000, 0x7fff_f380_0000, 0, ""),
            of(0x7fff_f7c0_0000, 0x7fff_f7e0_0000, 8, "/lib/libc.so.6"),
            of(0x7fff_f7fc_0000, 0x7fff_f7ff_f000, 9, "/lib/ld.so"),
            of(0x7fff_fffd_e000, 0x7fff_ffff_f000, 0, "[stack]"),
        ]
    }

    /// Regression: a thread's stack was mapped where the trampolines of libc's hooks were planned.
    #[test]
    fn arenas_are_not_where_the_kernel_maps_next() {
        let space = gaps(&maps());
        let lowest = 0x7fff_f300_0000;
        let below = lowest - NEXT_ROOM;
        let heap_end = 0x5555_5558_1000;
        let middle = heap_end + (lowest - heap_end) / 2;
        let preferred = [
            0x1_0000..0x5555_5555_4000,
            0x5555_5555_8000..0x5555_5556_0000,
            middle..below,
        ];
        assert_eq!(space.preferred, preferred);
        let last = [
            heap_end..middle,
            below..lowest,
            0x7fff_f380_0000..0x7fff_f7c0_0000,
            0x7fff_f7e0_0000..0x7fff_f7fc_0000,
        ];
        assert_eq!(space.last_resort, last);
    }
}
