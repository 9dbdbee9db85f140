//! Decides which pages of a file's code get their own mappings, so that forks copy less.
//!
//! If no page of a file's mapping was written, a fork copies none of the mapping's page-table entries, because the
//! child can read the file. One patched page makes the fork copy the entries of all resident pages of its mapping. So
//! patched pages close to each other get their own mapping.

use std::ops::Range;

use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::Site;

const PAGE: u64 = 4096;
/// The most unpatched pages between two patched pages of one mapping. Giving these pages a mapping of their own would
/// add two mappings, whose copies cost each fork and child's end 3 us in all. Copying a resident page's entry costs
/// 0.1 us.
const MOST_BETWEEN: u64 = 40;

pub(super) fn ranges<'a>(
    maps: &[Mapping],
    sites: impl Iterator<Item = &'a Site>,
) -> Vec<Range<u64>> {
    let mut pages: Vec<Range<u64>> = sites.map(pages_of).collect();
    pages.sort_unstable_by_key(|range| range.start);
    let may_be_split = |mapping: &&Mapping| mapping.file().is_some() && mapping.perms.exec;
    let mappings = maps.iter().filter(may_be_split);
    mappings
        .flat_map(|mapping| within(mapping, &pages))
        .collect()
}

fn pages_of(site: &Site) -> Range<u64> {
    let last = site.address + u64::from(site.len).saturating_sub(1);
    site.address & !(PAGE - 1)..(last & !(PAGE - 1)) + PAGE
}

/// Returns the ranges that need own mappings; none if they are the whole mapping.
fn within(mapping: &Mapping, pages: &[Range<u64>]) -> Vec<Range<u64>> {
    let far = MOST_BETWEEN * PAGE;
    let first = pages.partition_point(|range| range.start < mapping.start);
    let inside = pages[first..].iter();
    let inside = inside.take_while(|range| range.end <= mapping.end);
    let mut found: Vec<Range<u64>> = Vec::new();
    for range in inside {
        match found.last_mut() {
            Some(last) if range.start <= last.end + far => last.end = last.end.max(range.end),
            _ => found.push(range.clone()),
        }
    }
    if let Some(first) = found.first_mut().filter(|f| f.start - mapping.start <= far) {
        first.start = mapping.start;
    }
    if let Some(last) = found.last_mut().filter(|l| mapping.end - l.end <= far) {
        last.end = mapping.end;
    }
    found.retain(|range| *range != (mapping.start..mapping.end));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_sys::host::procfs::Perms;

    const START: u64 = 0x7000_0000_0000;

    fn mapping(pages: u64, path: Option<&str>) -> Mapping {
        Mapping {
            start: START,
            end: START + pages * PAGE,
            perms: Perms {
                exec: true,
                ..Perms::default()
            },
            inode: u64::from(path.is_some()),
            path: path.map(Into::into),
            ..Mapping::default()
        }
    }

    #[test]
    fn patched_pages_that_are_far_from_others_are_a_mapping_of_their_own() {
        let of = |path, pages, at: &[u64]| {
            let site = |at: &u64| Site {
                address: START + at,
                len: 5,
                ..Site::default()
            };
            let sites: Vec<Site> = at.iter().map(site).collect();
            let ranges = ranges(&[mapping(pages, path)], sites.iter());
            let page = |address| (address - START) / PAGE;
            let pages = |range: &Range<u64>| [page(range.start), page(range.end)];
            ranges.iter().map(pages).collect::<Vec<_>>()
        };
        let libc = Some("/lib/libc.so.6");
        assert_eq!(of(libc, 100, &[50 * PAGE]), [[50, 51]]);
        assert_eq!(of(libc, 100, &[51 * PAGE - 2]), [[50, 52]]);
        assert_eq!(of(libc, 200, &[90 * PAGE, 50 * PAGE]), [[50, 91]]);
        assert_eq!(
            of(libc, 200, &[50 * PAGE, 100 * PAGE, 100 * PAGE + 9]),
            [[50, 51], [100, 101]]
        );
        assert_eq!(of(libc, 120, &[9 * PAGE, 60 * PAGE]), [[0, 10], [60, 61]]);
        assert_eq!(of(libc, 100, &[90 * PAGE]), [[90, 100]]);
        assert_eq!(of(libc, 70, &[35 * PAGE]), [[0; 2]; 0]);
        assert_eq!(of(None, 100, &[50 * PAGE]), [[0; 2]; 0]);
        assert_eq!(of(libc, 10, &[50 * PAGE]), [[0; 2]; 0]);
    }
}
