use tiptoe_wire::arena::CALLER_BYTES;

use super::*;

const SITE: u64 = 0x5555_0000_0005;

fn want(heads: &[u8]) -> RoomRequest {
    RoomRequest {
        origin: SITE,
        any: Displacement::over(heads, ByteSet::TRAPS),
        pairs: Displacement::over(heads, ByteSet::TRAPS),
        reach: (0, u64::MAX),
        len: 64,
        hot: 0,
        unwind_len: 128,
        needs_callers: false,
    }
}

fn arenas(preferred: Range<u64>, last_resort: Range<u64>) -> Arenas {
    let (preferred, last_resort) = (vec![preferred], vec![last_resort]);
    Arenas::new(Space {
        preferred,
        last_resort,
        ..Space::default()
    })
}

#[test]
fn every_place_has_trap_bytes_on_its_heads() {
    let mut arenas = arenas(SITE - (2 << 30)..SITE - 5, 0..0);
    for heads in [
        &[][..],
        &[1],
        &[2],
        &[3],
        &[4],
        &[1, 4],
        &[2, 4],
        &[1, 2, 3, 4],
    ] {
        let at = arenas.reserve(want(heads)).expect("room").at;
        let bytes = (at.wrapping_sub(SITE) as u32).to_le_bytes();
        for &head in heads {
            let byte = bytes[usize::from(head) - 1];
            assert!(ByteSet::TRAPS.contains(byte), "{heads:?}: {byte:#x}");
        }
    }
}

/// Regression: a jump whose two lowest bytes are fixed reaches one offset in each arena. It had no room if arenas had
/// their index of trampolines there.
#[test]
fn each_offset_is_free_in_some_arena() {
    for page in 0..16 {
        for offset in [0, 16, 0x90, 0x7f0, 0xa92, 0xfc0] {
            let at = page << 12 | offset;
            let mut arenas = arenas(SITE - (2 << 30)..SITE - 5, 0..0);
            let [low, high] = ((at as u64).wrapping_sub(SITE) as u16).to_le_bytes();
            let mut fixed = Displacement::over(&[3], ByteSet::TRAPS);
            fixed.0[0] = ByteSet::only(low);
            fixed.0[1] = ByteSet::only(high);
            let room = arenas.reserve(RoomRequest {
                any: fixed,
                pairs: fixed,
                ..want(&[])
            });
            let room = room.unwrap_or_else(|| panic!("{at:#x} is in no arena"));
            assert_eq!(room.at % ARENA_LEN, at as u64);
        }
    }
}

#[test]
fn arenas_of_a_free_range_are_mapped_at_once() {
    let free = SITE - (2 << 30)..SITE - 5;
    let mut arenas = arenas(free.clone(), 0..0);
    for heads in [&[1u8][..], &[2], &[3], &[4]] {
        let callers = heads == [2];
        let want = RoomRequest {
            needs_callers: callers,
            ..want(heads)
        };
        let place = arenas.reserve(want).expect("room");
        assert_eq!(callers, place.callers != 0);
    }
    let [callers] = arenas.space.callers[..] else {
        panic!("{:x?}", arenas.space.callers);
    };
    let ranges = arenas.fresh_ranges();
    let bases = arenas.fresh.clone();
    assert!(bases.len() > 1, "{bases:x?}");
    assert!(ranges.len() <= 2, "{ranges:x?}");
    let inside = |base: &u64| ranges.iter().any(|range| range.contains(base));
    assert!(bases.iter().all(inside), "{bases:x?} {ranges:x?}");
    assert!(!inside(&callers.base), "{callers:x?} {ranges:x?}");

    let mut again = Arenas::new(Space {
        preferred: vec![],
        mapped: ranges.clone(),
        callers: vec![callers],
        ..Space::default()
    });
    let want = RoomRequest {
        needs_callers: true,
        ..want(&[1])
    };
    let place = again.reserve(want).expect("room");
    assert!(inside(&place.at), "{place:x?}");
    assert_eq!(place.callers, callers.base + CALLER_BYTES);
    assert!(again.fresh_ranges().is_empty());
}

/// Regression: every process had its arenas at the same distance from the code.
#[test]
fn the_seed_chooses_among_all_free_places() {
    let base = |free: &Range<u64>, seed| {
        let mut arenas = Arenas::new(Space {
            preferred: vec![free.clone()],
            seed,
            ..Space::default()
        });
        base_of(arenas.reserve(want(&[])).expect("room").at)
    };
    let places = |free: Range<u64>| {
        let seeds = (0..4000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let places: BTreeSet<u64> = seeds.map(|seed| base(&free, seed)).collect();
        assert!(places.iter().all(|at| free.contains(at)));
        places.len()
    };
    assert!(places(SITE - (2 << 30)..SITE - 5) > 1000);
    // Below a position-dependent program there are 63 places for an arena.
    let below = (SITE - (63 << 16)) & !0xffff;
    assert!(places(below..below + (63 << 16)) > 60);
}

#[test]
fn places_never_overlap() {
    let mut arenas = arenas(SITE - (2 << 30)..SITE - 5, 0..0);
    let mut places: Vec<(u64, u64)> = (0..4000u64)
        .map(|i| {
            let origin = SITE + 32 * i;
            let heads = [&[1u8][..], &[2, 4], &[], &[3]][i as usize % 4];
            let moved = RoomRequest {
                origin,
                ..want(heads)
            };
            arenas.reserve(moved).expect("room")
        })
        .flat_map(|place| [(place.at, 64), (place.unwind, 128)])
        .collect();
    places.sort_unstable();
    assert!(places.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
    let inside = |at: u64| rooms(base_of(at)).any(|room| room.contains(&at));
    assert!(
        places
            .iter()
            .all(|(at, len)| inside(*at) && inside(at + len - 1))
    );
}

#[test]
fn hot_bytes_straddle_no_line_where_they_need_not() {
    let mut arenas = arenas(SITE - (2 << 30)..SITE - 5, 0..0);
    for heads in [&[][..], &[1, 4]] {
        for index in 0..1000 {
            let origin = SITE + 16 * index;
            let hot = 36;
            let place = arenas.reserve(RoomRequest {
                origin,
                hot,
                ..want(heads)
            });
            let at = place.expect("room").at;
            assert!(at % 64 + hot <= 64, "{at:#x}");
        }
    }
}

#[test]
fn the_heap_is_spared_while_there_is_another_place() {
    let (low, high) = (SITE + (1 << 28), SITE + (0x60 << 24));
    let mut both = arenas(high..high + (1 << 28), low..high);
    assert!(both.reserve(want(&[4])).expect("room").at >= high);
    let mut only = arenas(0..0, low..high);
    assert!(only.reserve(want(&[4])).expect("room").at < high);
}

#[test]
fn an_arena_of_an_earlier_attach_is_reused() {
    let base = base_of(SITE - (1 << 28)) & !ARENA_LEN;
    let first = base + CODE..base + CODE + 100;
    let used = vec![first];
    let space = Space {
        arenas: vec![UsedArena { base, used }],
        ..Space::default()
    };
    let mut arenas = Arenas::new(space);
    let place = arenas.reserve(want(&[])).expect("room");
    assert_eq!(
        (place.at, place.unwind),
        (base + CODE + 100, base + END - 128)
    );
    let abi = Abi::default();
    assert!(arenas.take_fresh(&abi).is_empty());
}

#[test]
fn a_full_space_gives_no_place() {
    assert_eq!(arenas(0..0, 0..0).reserve(want(&[])), None);
    let far = SITE + (3 << 30);
    assert_eq!(arenas(far..far + (1 << 30), 0..0).reserve(want(&[])), None);
}
