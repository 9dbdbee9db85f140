//! Finds the user's call site: the first return address outside the runtime's libraries.
//!
//! The runtime keeps no frame pointers. So tiptoe puts tables into slab 0, which all threads share. Their rows describe
//! how to return from the runtime's functions ([`tiptoe_stack`]).
//!
//! The standard libraries of C++ and Rust are partly compiled into the program. Such a program is added as a
//! [`RuntimePart::Mixed`] library, with rows only for the standard library's functions. A walk ends at the first
//! function without a row. If a walk must stop before it finds one, it returns the innermost call in the mixed library.
//!
//! Most walks need the same few rows, so each row that a walk finds is cached for ever, by a hash of the return
//! address. tiptoe may add libraries while threads walk.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | D: a library is complete | [`Frames::add`] stores the library's end | a search for a row |
//! | E: a cached row is complete | the row's return address | a search of the cache |
//! | F: all counted libraries are complete | [`Frames::add`] stores their count | [`Frames::caller`] loads the count |

use core::cell::Cell;

use tiptoe_stack::{Frame, Rule, find};
use tiptoe_wire::Words;
use tiptoe_wire::futex::frames::{
    BEGIN, CACHE, CACHE_BITS, CACHED_LIBC, CACHED_MIXED, CACHED_TAKEN, COUNT, END, FIRST,
    LIBRARIES, LOOKS, MOST_ROWS, OWNER_COUNT, OWNER_SHIFT, OWNER_WORDS, OWNERS, ROWS, library,
};

use crate::HASH;
use crate::paths::{Caller, PathBeginning, PathLookup, Paths};
use crate::primitive::Ordering::{Acquire, Relaxed, Release};

/// The most functions in a walk; unoptimised C++ calls through many.
const MOST: usize = 24;

/// A library of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library {
    /// The offset that the loader adds to the library's addresses.
    pub base: u64,
    /// The start of its code.
    pub start: u64,
    /// The end of its code.
    pub end: u64,
    /// Which part of the runtime the library is.
    pub part: RuntimePart,
}

/// A part of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimePart {
    /// The C library, whose waiting function shows the kind of lock.
    Libc,
    /// Another library of the runtime.
    Other,
    /// The user's code, with functions of a standard library in it.
    Mixed,
}

impl RuntimePart {
    fn flag(self) -> u64 {
        match self {
            RuntimePart::Libc => library::LIBC,
            RuntimePart::Other => 0,
            RuntimePart::Mixed => library::MIXED,
        }
    }
}

/// The tables in slab 0.
#[derive(Clone, Copy)]
pub struct Frames<'a>(Words<'a>);

#[derive(Clone, Copy)]
struct LeaveRule(u64);

impl LeaveRule {
    fn rule(self) -> Rule {
        Rule::from_bits(self.0 as u32)
    }

    fn is_in_libc(self) -> bool {
        self.0 & CACHED_LIBC != 0
    }

    fn is_mixed(self) -> bool {
        self.0 & CACHED_MIXED != 0
    }

    #[inline]
    fn of_the_runtime(self) -> Option<LeaveRule> {
        let users = self.is_mixed() && self.rule() == Rule::UNKNOWN;
        (!users).then_some(self)
    }
}

impl<'a> Frames<'a> {
    /// Returns slab 0's tables.
    pub fn new(words: Words<'a>) -> Self {
        Frames(words)
    }

    /// Adds a library and its rows. Returns `false` if `rows` is empty or the tables are full. Called only by tiptoe.
    pub fn add(&self, added: &Library, rows: &[u64]) -> bool {
        let word = |number, word| (FIRST + number * library::WORDS + word) as usize;
        let held = |number: &u32| counted(self.0.load(word(*number, library::ROWS)));
        let number = (0..LIBRARIES).find(|number| held(number) == 0);
        let used = (0..LIBRARIES).map(|number| held(&number));
        let used = used.fold(0, u32::saturating_add);
        let room = MOST_ROWS.saturating_sub(used) as usize;
        let Some(number) = number.filter(|_| (1..=room).contains(&rows.len())) else {
            return false;
        };
        for (index, row) in rows.iter().enumerate() {
            self.0.store((ROWS + used) as usize + index, *row);
        }
        let rows = u64::from(used) | (rows.len() as u64) << 32 | added.part.flag();
        self.0.store(word(number, library::ROWS), rows);
        self.0.store(word(number, library::BASE), added.base);
        self.0.store(word(number, library::START), added.start);
        if let Some(end) = self.0.at(word(number, library::END)) {
            end.store(added.end, Release); // edge D
        }
        let others = |which| (0..number).map(move |number| self.0.load(word(number, which)));
        let first = others(library::START).fold(added.start, u64::min);
        let last = others(library::END).fold(added.end, u64::max);
        self.0.store(BEGIN as usize, first);
        self.0.store(END as usize, last);
        if let Some(count) = self.0.at(COUNT as usize) {
            count.store(u64::from(number) + 1, Release); // edge F
        }
        true
    }

    /// Records that the libc functions in a range wait for a kind of lock (`frames::owner`), unless the table is full.
    /// tiptoe must call this before it adds libc, because cached paths contain the kind.
    pub fn add_owner(&self, functions: core::ops::Range<u64>, owner: u64) {
        let places = (0..OWNER_COUNT).map(|number| (OWNERS + number * OWNER_WORDS) as usize);
        let free = { places }.find(|place| self.0.load(place + 1) == 0);
        if let Some(place) = free {
            self.0.store(place, functions.start);
            self.0
                .store(place + 1, functions.end | owner << OWNER_SHIFT);
        }
    }

    fn with_owner(&self, via: u64) -> u64 {
        const ADDRESS: u64 = (1 << OWNER_SHIFT) - 1;
        // A call may be its function's last instruction; then the return address is in the next function.
        let call = via.wrapping_sub(1);
        for number in 0..OWNER_COUNT {
            let place = (OWNERS + number * OWNER_WORDS) as usize;
            let [start, end] = [place, place + 1].map(|word| self.0.load(word));
            if end == 0 || via == 0 {
                break;
            }
            if (start..end & ADDRESS).contains(&call) {
                return via | end & !ADDRESS;
            }
        }
        via
    }

    /// Returns the rule that leads out of a return address's function; `None` if the address is the user's.
    #[inline]
    fn way(&self, address: u64) -> Option<LeaveRule> {
        let hash = (address.wrapping_mul(HASH) >> (64 - CACHE_BITS)) as usize;
        let first = CACHE as usize + 2 * hash;
        let places = (0..LOOKS as usize).map(|more| first + 2 * more);
        for place in places {
            let known = self.0.at(place)?.load(Acquire); // edge E
            if known == 0 {
                break;
            }
            if known == address {
                return LeaveRule(self.0.load(place + 1)).of_the_runtime();
            }
        }
        match self.is_far(address) {
            true => None,
            false => self.way_slow(address, first),
        }
    }

    #[inline(never)]
    fn way_slow(&self, address: u64, first: usize) -> Option<LeaveRule> {
        // As in `with_owner`.
        let call = address.wrapping_sub(1);
        let word = |number, word| (FIRST + number * library::WORDS + word) as usize;
        let inside = |number: &u32| {
            let end = self.0.at(word(*number, library::END));
            let end = end.map_or(0, |end| end.load(Acquire)); // edge D
            call < end && call >= self.0.load(word(*number, library::START))
        };
        let number = (0..LIBRARIES).find(inside)?;
        let rows = self.0.load(word(number, library::ROWS));
        let row = |index| {
            self.0
                .load((ROWS as usize).saturating_add((rows as u32).saturating_add(index) as usize))
        };
        let at = call.wrapping_sub(self.0.load(word(number, library::BASE)));
        let rule = find(counted(rows), row, at as u32);
        let part = match (rows & library::LIBC, rows & library::MIXED) {
            (0, 0) => 0,
            (0, _) => CACHED_MIXED,
            _ => CACHED_LIBC,
        };
        let way = LeaveRule(u64::from(rule.bits()) | part);
        self.keep(address, first, way);
        way.of_the_runtime()
    }

    #[cold]
    fn keep(&self, address: u64, first: usize, LeaveRule(found): LeaveRule) {
        for place in (0..LOOKS as usize).map(|more| first + 2 * more) {
            let words = self.0.at(place).zip(self.0.at(place + 1));
            let Some((known, value)) = words else { return };
            // Relaxed: the Release store of the address publishes this word.
            let taken = value.compare_exchange(0, found | CACHED_TAKEN, Relaxed, Relaxed);
            if taken.is_ok() {
                return known.store(address, Release); // edge E
            }
        }
    }

    #[inline]
    fn is_far(&self, address: u64) -> bool {
        let [begin, end] = [BEGIN, END].map(|word| self.0.load(word as usize));
        !(begin..end).contains(&address)
    }

    /// Walks from `frame` to the user's call site. `rule` leads out of the frame's function; `load` reads the stack.
    /// Must be inlined. Otherwise the compiler would move the result in vector registers, which the hook does not save.
    #[inline(always)]
    pub fn caller(
        &self,
        paths: &Paths,
        rule: Rule,
        frame: Frame,
        load: impl Fn(u64) -> u64,
    ) -> Caller {
        let Some(top) = rule.cfa(&frame) else {
            return self.walk_slow(rule, frame, &load);
        };
        let count = self.0.at(COUNT as usize);
        let count = count.map_or(0, |count| count.load(Acquire)); // edge F
        let first = load(top.wrapping_sub(8));
        if self.is_far(first) {
            return Caller {
                site: first,
                via: 0,
                frame: top,
            };
        }
        let begins = PathBeginning { first, top, count };
        let is_users = |site| self.is_far(site) || self.way(site).is_none();
        match paths.look(&begins, &load, is_users) {
            PathLookup::To(caller) => return caller,
            PathLookup::Nothing => self.learn(paths, &begins, &load),
            PathLookup::Unkept => {}
        }
        self.walk_slow(rule, frame, &load)
    }

    #[inline(always)]
    fn walk_slow(&self, rule: Rule, from: Frame, load: &impl Fn(u64) -> u64) -> Caller {
        let via = Cell::new(0);
        let (site, frame) = self.walk_cold(rule, [from.pc, from.sp, from.bp], &via, load);
        let via = self.with_owner(via.get());
        Caller { site, via, frame }
    }

    /// Returns two words, as many as registers can return.
    #[cold]
    #[inline(never)]
    fn walk_cold(
        &self,
        rule: Rule,
        [pc, sp, bp]: [u64; 3],
        via: &Cell<u64>,
        load: &impl Fn(u64) -> u64,
    ) -> (u64, u64) {
        let caller = self.walk(rule, Frame { pc, sp, bp }, load);
        via.set(caller.via);
        (caller.site, caller.frame)
    }

    #[cold]
    #[inline(never)]
    fn learn(&self, paths: &Paths, begins: &PathBeginning, load: &impl Fn(u64) -> u64) {
        let Some(path) = paths.take(begins) else {
            return;
        };
        let mut frame = Frame {
            pc: begins.first,
            sp: begins.top,
            bp: 0,
        };
        let (mut in_libc, mut via) = (true, 0);
        for step in 0.. {
            let left = frame.pc;
            let Some(way) = self.way(left) else {
                return path.ends(self.with_owner(via), left);
            };
            in_libc &= way.is_in_libc();
            if in_libc {
                via = left;
            }
            let rule = Some(way.rule()).filter(|rule| rule.is_by_sp());
            let next = rule.and_then(|rule| rule.step(&frame, |at| Some(load(at))));
            let Some(next) = next else { return };
            if !path.leads(step, left, next.sp - begins.top) {
                return;
            }
            frame = next;
        }
    }

    #[inline(always)]
    pub(crate) fn walk(
        &self,
        mut rule: Rule,
        mut frame: Frame,
        load: impl Fn(u64) -> u64,
    ) -> Caller {
        let mut caller = Caller {
            frame: frame.sp,
            ..Caller::default()
        };
        let mut in_libc = true;
        let mut innermost = None;
        for _ in 0..MOST {
            let left = frame.pc;
            let Some(next) = rule.step(&frame, |at| Some(load(at))) else {
                break;
            };
            if in_libc && caller.site != 0 {
                caller.via = left;
            }
            (caller.site, caller.frame) = (next.pc, next.sp);
            let Some(way) = self.way(next.pc) else {
                return caller;
            };
            if way.is_mixed() {
                innermost.get_or_insert((next.pc, next.sp));
            }
            in_libc &= way.is_in_libc();
            rule = way.rule();
            frame = next;
        }
        if let Some(place) = innermost {
            (caller.site, caller.frame) = place;
        }
        caller
    }
}

fn counted(rows: u64) -> u32 {
    (rows >> 32) as u32 & (u32::MAX >> 2)
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests;
