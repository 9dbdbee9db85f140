//! The decoders of shared memory that a target can overwrite must not panic, or return a number outside the
//! geometry. The input's first two bytes give the geometry. An accepted site (patched place) must decode to itself
//! after encoding. If the table finds a site at an address, the site must have a head (a byte that traps) there.
#![no_main]

use std::sync::atomic::AtomicU64;

use libfuzzer_sys::fuzz_target;
use tiptoe_uprobe::table::Table;
use tiptoe_wire::ring::{self, CELLS, Entry, Reader};
use tiptoe_wire::{
    Data, Geometry, Plan, SITE_WORDS, SLOT_WORDS, Site, Words, arena, scopes, values,
};

fuzz_target!(|input: &[u8]| {
    let Some((&[slots, slabs], bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let geometry = Geometry {
        slots: u32::from(slots) % 9 + 1,
        slabs: u32::from(slabs) % 3 + 1,
        rings: slabs & 0x80 != 0,
        hits: false,
    };
    let words: Vec<u64> = bytes
        .chunks(8)
        .map(|chunk| u64::from_le_bytes(std::array::from_fn(|at| *chunk.get(at).unwrap_or(&0))))
        .collect();
    data(&words, geometry);
    let kept: Vec<(u64, u64)> = values::decode(&words).collect();
    assert!(kept.len() <= values::ROOM as usize + 1 && kept.iter().all(|(_, hits)| *hits != 0));
    scopes(&words);
    plan(&words);
    let sites: Vec<Site> = words.chunks_exact(SITE_WORDS).filter_map(site).collect();
    table(sites);
});

/// The walk from a scope (named part of work) to the root must end, so no scope may be its own descendant.
fn scopes(words: &[u64]) {
    assert!(scopes::spent(words).all(|(node, _)| node < scopes::NODES));
    let mut nodes = vec![0; scopes::WIDTH as usize];
    let records = nodes[scopes::RECORDS as usize..].iter_mut();
    records.zip(words).for_each(|(to, word)| *to = *word);
    for number in 0..=scopes::NODES {
        if let Some(node) = scopes::node(&nodes, number) {
            assert!(node.parent < number || node.parent == scopes::OTHERS);
            assert!(node.name().len() <= scopes::record::NAME_BYTES);
        }
    }
}

fn data(words: &[u64], geometry: Geometry) {
    let segment: Vec<AtomicU64> = (0..geometry.data_bytes() / 8)
        .map(|_| AtomicU64::new(0))
        .collect();
    let directory = (geometry.entry_offset(0) / 8) as usize;
    for start in [0, directory] {
        for (cell, word) in segment[start..].iter().zip(words) {
            cell.store(*word, std::sync::atomic::Ordering::Relaxed);
        }
    }
    rings(&segment, words, geometry);
    let data = Data::new(Words::new(&segment), geometry).expect("long enough");
    let _ = (
        data.hello(),
        data.state(),
        data.thread(),
        data.acknowledged(),
        data.outcome(),
        data.readings(),
    );
    for index in [0, 1, geometry.slabs - 1, geometry.slabs, u32::MAX] {
        assert!(data.slab_owner(index).is_none() || index < geometry.slabs);
        for slot in [0, geometry.slots - 1, geometry.slots, u32::MAX] {
            let inside = index < geometry.slabs && slot < geometry.slots;
            assert!(inside || data.counter(index, slot) == 0);
        }
        let _ = data.result(index as usize);
    }
    assert!(Data::new(Words::new(&segment[1..]), geometry).is_none());
}

/// Reading a ring of calls must end, return no more than a ring holds, and depend only on the reader's state.
fn rings(segment: &[AtomicU64], words: &[u64], geometry: Geometry) {
    let data = Data::new(Words::new(segment), geometry).expect("long enough");
    assert_eq!(data.ring(0).is_some(), geometry.rings);
    assert!(data.ring(geometry.slabs).is_none());
    let Some(ring) = data.ring(0) else { return };
    let slab = (geometry.slab_offset(0) / 8) as usize;
    let cells = slab + (geometry.ring_offset() / 8) as usize;
    for start in [slab, cells] {
        for (cell, word) in segment[start..].iter().zip(words) {
            cell.store(*word, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let mut reader = Reader::default();
    for head in words
        .iter()
        .take(4)
        .flat_map(|word| [*word, word % CELLS as u64])
    {
        segment[slab + ring::slab::HEAD].store(head, std::sync::atomic::Ordering::Relaxed);
        for patience in [1, 0] {
            let mut entries = 0;
            let lost = reader.read(&ring, patience, |entry| {
                let of_a_probe = |slot| slot >= Geometry::FIRST_SLOT;
                assert!(!matches!(entry, Entry::Call(call) if !of_a_probe(call.slot)));
                entries += 1;
            });
            assert!(entries + lost <= CELLS as u64 || entries == 0);
        }
    }
}

fn plan(words: &[u64]) {
    let segment: Vec<AtomicU64> = words.iter().copied().map(AtomicU64::new).collect();
    let plan = Plan::new(Words::new(&segment));
    let _ = (plan.geometry(), plan.keeps_slabs(), plan.sequence());
    assert!(
        plan.request()
            .is_none_or(|(_, count)| count <= Plan::MAX_RECORDS)
    );
    for index in 0..4 {
        let _ = (plan.site(index), plan.address(index));
        assert!(plan.map(index).len.is_multiple_of(arena::LEN));
    }
}

fn site(words: &[u64]) -> Option<Site> {
    let site = Site::decode(words.try_into().ok()?)?;
    assert_eq!(Site::decode(site.encode()), Some(site));
    assert!(site.heads().iter().all(|head| head.offset < site.len));
    Some(site)
}

fn table(mut sites: Vec<Site>) {
    sites.retain(|site| site.address != 0);
    sites.sort_by_key(|site| site.address);
    sites.dedup_by_key(|site| site.address);
    let slot = || [const { AtomicU64::new(0) }; SLOT_WORDS];
    let slots: Vec<_> = sites.iter().map(|_| slot()).collect();
    let table = Table::new(&slots);
    let (first, second) = sites.split_at(sites.len() / 2);
    for part in [second, first] {
        table
            .insert(part.len(), |index| part.get(index).copied())
            .expect("room, and in order");
    }
    for site in &sites {
        assert_eq!(
            table.find(site.address).map(|found| found.site),
            Some(*site)
        );
        for address in (0..8).map(|offset| site.address.wrapping_add(offset)) {
            let Some(found) = table.find(address) else {
                continue;
            };
            assert_eq!(found.site.address + u64::from(found.offset), address);
            assert!(
                found
                    .site
                    .heads()
                    .iter()
                    .any(|head| head.offset == found.offset)
            );
        }
    }
}
