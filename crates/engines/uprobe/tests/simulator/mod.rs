//! Simulates cores that fetch code while it is written.
//!
//! The patcher's steps are writes and refetches. A core may see any value that a byte had since the core's last
//! refetch; only an aligned word that one write changed is seen whole. A thread may fetch at any instruction head,
//! because it may have been preempted there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use tiptoe_uprobe::patcher::Text;
use tiptoe_wire::{Head, MAX_HEADS, Site};

pub const INT3: u8 = 0xcc;
const ILLEGAL: u8 = 0x06;
const JUMP: u8 = 0xe9;
const SHORT_JUMP: u8 = 0xeb;
const CALL: u8 = 0xe8;

/// How the planner keeps a patch safe when another tool restores its first byte (`tiptoe_patch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    None,
    /// The second byte is invalid after the original first byte, as an operand or as an instruction after a prefix.
    Invalid,
    /// The first instruction's other bytes stay.
    Keep,
    /// Original and patch are calls that differ only in their last byte.
    Call,
}

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub site: Site,
    pub end: u8,
    pub guard: Guard,
}

impl Shape {
    fn new(address: u64, len: u8, inner: &[u8], end: u8) -> Shape {
        let mut site = Site {
            address,
            len,
            trampoline: 0x7000,
            ..Site::default()
        };
        site.original = std::array::from_fn(|at| 0x10 + at as u8);
        site.patched = std::array::from_fn(|at| 0xa0 + at as u8);
        site.patched[0] = match len {
            5 | 6 => JUMP,
            2 => SHORT_JUMP,
            _ => INT3,
        };
        for (index, &offset) in std::iter::once(&0).chain(inner).enumerate() {
            site.heads[index] = Head {
                offset,
                resume: 100 + u16::from(offset),
                is_guard: false,
            };
            if offset > 0 {
                site.patched[usize::from(offset)] = [INT3, ILLEGAL][index % 2];
            }
        }
        if len == 6 {
            (site.patched[4], site.patched[5]) = (0xfe, 0xff);
        }
        site.head_count = inner.len() as u8 + 1;
        if len == 2 {
            site.island = address + 100;
            site.island_original = [0x90; 8];
            site.island_patched = [JUMP, 1, 2, 3, 4, 0, 0, 0];
        }
        let guard = Guard::None;
        Shape { site, end, guard }
    }

    fn with_guards(self) -> impl Iterator<Item = Shape> {
        use Guard::{Call, Invalid, Keep, None};
        let all = [None, Invalid, Keep, Call];
        all.into_iter().filter_map(move |guard| self.guarded(guard))
    }

    fn guarded(mut self, guard: Guard) -> Option<Shape> {
        let len = usize::from(self.first_len());
        let site = &mut self.site;
        match guard {
            Guard::None => {}
            _ if site.len < 5 || len == 1 || site.head_count as usize == MAX_HEADS => return None,
            Guard::Invalid => {
                site.heads.copy_within(1..4, 2);
                site.heads[1] = Head {
                    offset: 1,
                    resume: 200,
                    is_guard: true,
                };
                site.head_count += 1;
                site.patched[1] = ILLEGAL;
            }
            Guard::Keep if len > 4 => return None,
            Guard::Keep => site.patched[1..len].copy_from_slice(&site.original[1..len]),
            Guard::Call if len != 5 => return None,
            Guard::Call => {
                (site.original[0], site.patched[0]) = (CALL, CALL);
                site.patched[1..4].copy_from_slice(&site.original[1..4]);
            }
        }
        self.guard = guard;
        Some(self)
    }

    /// Returns each jump, short jump and trap, with each set of heads, end of the last instruction, and guard.
    pub fn all(address: u64) -> Vec<Shape> {
        let mut shapes = Vec::new();
        for (len, subsets) in [(6, 8..16), (5, 0..16), (2, 0..2), (1, 0..1)] {
            for subset in subsets {
                let inner: Vec<u8> = (1..len).filter(|h| subset >> (h - 1) & 1 == 1).collect();
                let last = inner.last().copied().unwrap_or(0);
                let ends = BTreeSet::from([(last + 1).max(len / 6 * 6), len, 8]);
                let bare = ends
                    .into_iter()
                    .map(|end| Shape::new(address, len, &inner, end));
                shapes.extend(bare.flat_map(Shape::with_guards));
            }
        }
        assert!(
            shapes
                .iter()
                .all(|s| s.site.head_count as usize <= MAX_HEADS)
        );
        shapes
    }

    pub fn first_len(&self) -> u8 {
        self.instructions()[0].1
    }

    fn instructions(&self) -> Vec<(u8, u8)> {
        let offsets = self.site.heads().iter().map(|head| head.offset);
        let inside = |offset: &u8| *offset == 1 && self.guard == Guard::Invalid;
        let heads: Vec<u8> = offsets.filter(|offset| !inside(offset)).collect();
        let ends = heads[1..].iter().copied().chain([self.end]);
        heads.iter().copied().zip(ends).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Write(u64, Vec<u8>),
    Sync,
}

#[derive(Clone, Debug, Default)]
pub struct Memory {
    bytes: RefCell<BTreeMap<u64, u8>>,
    steps: RefCell<Vec<Step>>,
    /// How many accesses succeed before the memory from `unmapped_from` on is unmapped.
    pub accesses_left: RefCell<Option<usize>>,
    pub unmapped_from: u64,
}

impl Memory {
    pub fn of(shapes: &[Shape]) -> Memory {
        let memory = Memory::default();
        for Shape { site, .. } in shapes {
            memory.put(site.address, &site.original);
            if site.island != 0 {
                memory.put(site.island, &site.island_original[..5]);
            }
        }
        memory
    }

    /// Writes without recording a step, as another tool does.
    pub fn put(&self, address: u64, bytes: &[u8]) {
        let addressed = (address..).zip(bytes.iter().copied());
        self.bytes.borrow_mut().extend(addressed);
    }

    pub fn get(&self, address: u64, len: u8) -> Vec<u8> {
        let bytes = self.bytes.borrow();
        (address..address + u64::from(len))
            .map(|at| bytes.get(&at).copied().unwrap_or(0))
            .collect()
    }

    pub fn take_steps(&self) -> Vec<Step> {
        self.steps.take()
    }

    fn is_unmapped(&self, address: u64) -> bool {
        let mut left = self.accesses_left.borrow_mut();
        let unmapped = *left == Some(0) && address >= self.unmapped_from;
        if let Some(left) = left.as_mut() {
            *left = left.saturating_sub(1);
        }
        unmapped
    }
}

impl Text for Memory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        if self.is_unmapped(address) {
            return false;
        }
        bytes.copy_from_slice(&self.get(address, bytes.len() as u8));
        true
    }

    fn write(&self, address: u64, bytes: &[u8]) -> bool {
        if self.is_unmapped(address) {
            return false;
        }
        self.put(address, bytes);
        self.steps
            .borrow_mut()
            .push(Step::Write(address, bytes.to_vec()));
        true
    }

    fn sync(&self) {
        self.steps.borrow_mut().push(Step::Sync);
    }
}

/// A thread that ran other bytes than the original, the jump or a trap.
#[derive(Debug, PartialEq, Eq)]
pub struct Mix {
    pub site: u64,
    pub head: u8,
    pub after_step: usize,
}

type Word = [u8; 8];

/// The values of each word that a core may see.
#[derive(Clone)]
pub struct Cores {
    seen: BTreeMap<u64, BTreeSet<Word>>,
}

impl Cores {
    pub fn of(memory: &Memory) -> Cores {
        let bytes = memory.bytes.borrow();
        let mut words: BTreeMap<u64, Word> = BTreeMap::new();
        for (&at, &byte) in bytes.iter() {
            words.entry(at & !7).or_default()[at as usize % 8] = byte;
        }
        let one = |(at, word)| (at, BTreeSet::from([word]));
        Cores {
            seen: words.into_iter().map(one).collect(),
        }
    }

    pub fn run(&mut self, shapes: &[Shape], steps: &[Step]) -> Result<(), Mix> {
        let mut now: BTreeMap<u64, u8> = BTreeMap::new();
        for (after_step, step) in steps.iter().enumerate() {
            match step {
                Step::Write(address, bytes) => {
                    now.extend((*address..).zip(bytes.iter().copied()));
                    self.write(*address, bytes);
                }
                Step::Sync => self.refetch(&std::mem::take(&mut now)),
            }
            for shape in shapes {
                self.fetch(shape).map_err(|head| Mix {
                    site: shape.site.address,
                    head,
                    after_step,
                })?;
            }
        }
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        if let (0, Ok(word)) = (address % 8, Word::try_from(bytes)) {
            self.seen.entry(address).or_default().insert(word);
            return;
        }
        for (at, &byte) in (address..).zip(bytes) {
            let words = self
                .seen
                .entry(at & !7)
                .or_insert_with(|| [Word::default()].into());
            let changed = words.iter().map(|word| {
                let mut word = *word;
                word[at as usize % 8] = byte;
                word
            });
            let changed: Vec<Word> = changed.collect();
            words.extend(changed);
        }
    }

    fn refetch(&mut self, written: &BTreeMap<u64, u8>) {
        for (&at, &byte) in written {
            let words = self.seen.entry(at & !7).or_default();
            words.retain(|word| word[at as usize % 8] == byte);
        }
    }

    pub fn fetch(&self, shape: &Shape) -> Result<(), u8> {
        self.views(shape).try_for_each(|view| view.fetch(shape))
    }

    pub fn may_trap(&self, shape: &Shape) -> bool {
        self.views(shape)
            .any(|view| view.at(shape.site.address) == INT3)
    }

    fn views(&self, shape: &Shape) -> impl Iterator<Item = View> {
        let (site, island) = (shape.site.address, shape.site.island);
        let mut words = BTreeSet::from([site & !7, (site + 7) & !7]);
        if island != 0 {
            words.extend([island & !7, (island + 4) & !7]);
        }
        let mut views = vec![View::default()];
        for at in words {
            let Some(seen) = self.seen.get(&at) else {
                continue;
            };
            let with = |view: &View, word: &Word| {
                let mut view = view.clone();
                view.0.insert(at, *word);
                view
            };
            views = views
                .iter()
                .flat_map(|view| seen.iter().map(move |word| with(view, word)))
                .collect();
        }
        views.into_iter()
    }
}

#[derive(Clone, Default)]
struct View(BTreeMap<u64, Word>);

impl View {
    fn fetch(&self, shape: &Shape) -> Result<(), u8> {
        for (head, end) in shape.instructions() {
            let first = self.at(shape.site.address + u64::from(head));
            if !self.is_fine(shape, head, end, first) {
                return Err(head);
            }
        }
        Ok(())
    }

    fn is_fine(&self, shape: &Shape, head: u8, end: u8, first: u8) -> bool {
        let (site, offset) = (&shape.site, usize::from(head));
        let traps = first == INT3 || offset > 0 && self.traps(site, offset, first);
        let jumps = offset == 0 && first == site.patched[0] && self.jumps(site);
        let rest = offset + 1..usize::from(end);
        let original = first == site.original[offset]
            && (self.sees(site.address, rest, &site.original)
                || offset == 0 && self.is_guarded(shape, end));
        traps || jumps || original || self.calls(shape)
    }

    fn traps(&self, site: &Site, offset: usize, first: u8) -> bool {
        match (site.len, offset) {
            (6, 4) => {
                let both = || self.sees(site.address, 5..6, &site.patched);
                first == ILLEGAL || first == site.patched[4] && both()
            }
            _ => first == site.patched[offset],
        }
    }

    fn calls(&self, shape: &Shape) -> bool {
        let (site, last) = (&shape.site, shape.site.address + 4);
        shape.guard == Guard::Call
            && self.sees(site.address, 1..4, &site.original)
            && [site.original[4], site.patched[4]].contains(&self.at(last))
    }

    fn is_guarded(&self, shape: &Shape, end: u8) -> bool {
        let site = &shape.site;
        let second = self.at(site.address + 1);
        let rest = || self.sees(site.address, 2..usize::from(end), &site.original);
        shape.guard == Guard::Invalid
            && (second == site.patched[1] || second == site.original[1] && rest())
    }

    fn jumps(&self, site: &Site) -> bool {
        self.sees(site.address, 1..usize::from(site.len), &site.patched)
            && (site.island == 0 || self.sees(site.island, 0..5, &site.island_patched))
    }

    fn sees(&self, address: u64, mut range: std::ops::Range<usize>, bytes: &[u8; 8]) -> bool {
        range.all(|at| self.at(address + at as u64) == bytes[at])
    }

    fn at(&self, address: u64) -> u8 {
        let word = self.0.get(&(address & !7));
        word.map_or(0, |word| word[address as usize % 8])
    }
}
