//! Changes code while other threads run it, without stopping them.
//!
//! # Which way a site is patched
//! A *site* is a patched place. The bytes that a patch replaces are the site's *window*. A trap byte kills a thread
//! that blocks SIGTRAP or SIGILL. So only the last of these ways writes trap bytes:
//!
//! | the patch | armed and disarmed by | a thread that arrives during the change |
//! |---|---|---|
//! | replaces one instruction, in one aligned word of 8 bytes | one write of that word | runs the original, or jumps |
//! | any, while every thread is stopped outside windows ([`OtherThreads::Stopped`]) | plain writes | there is none |
//! | any other | the phases below | may trap |
//!
//! If only one instruction is replaced, no thread can be preempted in the middle of the window. A processor fetches an
//! aligned word as it was before or after one store to the whole word (AMD APM vol. 2, 7.3.2; Intel SDM vol. 3,
//! "Guaranteed Atomic Operations").
//!
//! The write repeats the word's other bytes, as just read. Race: the write erases a uprobe's trap byte that the kernel
//! writes to the word in between.
//!
//! # Phases
//! States of a window of 5 (or 2) bytes. A *head* is the first byte of an instruction, the *trampoline* the code that
//! counts:
//!
//! | phase | first byte | inner heads | other bytes | a thread that arrives |
//! |---|---|---|---|---|
//! | original | original | original | original | runs the original |
//! | trapped | `int3` | trap | original | is sent to the trampoline by the handler |
//! | tailed | `int3` | trap | jump's | is sent to the trampoline by the handler |
//! | armed | `jmp` | trap | jump's | jumps; a late one inside the window traps |
//!
//! A *guard* is a byte that traps if another tool restores the first byte (`tiptoe_patch`). It is written like a head.
//! A window of 6 bytes ends with two bytes that trap only together; the first of the two is a head. Until the second is
//! written, the head has another trap byte, which one more phase replaces.
//!
//! Between phases every core refetches the code ([`Text::sync`]). Disarming reverses the phases. The jump's bytes at
//! inner heads must trap; otherwise a thread preempted inside the window would run a part of the jump.
//!
//! The phases are an idea of LiteInst (PLDI 2017) and libpatch.
//!
//! # Foreign probes
//! The kernel may put a uprobe on a site's first byte at any moment, by writing a trap byte. When it removes the
//! uprobe, it writes the file's byte. Threads run the trap or the original instruction until [`rearm`] restores the
//! jump. A uprobe whose trap our writes erase counts nothing.
//!
//! A uprobe on an *inner* instruction breaks the site at once, because its trap, and later the file's byte, changes the
//! jump's displacement. [`disarm`] finds this in the site's bytes ([`Outcome::ForeignInside`]). The uprobe's removal
//! restores the file's byte in every process that has `int3` there. Other processes' patches are safe, because our
//! inner heads never have `int3`.
//!
//! # What stays
//! A window of 2 bytes jumps to an *island*, a long jump in padding that no other code reaches. Islands and trampolines
//! stay after disarming, because a preempted thread, a signal frame or a coroutine may hold their addresses.

use tiptoe_wire::Site;

const INT3: u8 = 0xcc;
/// The trap byte at [`Site::PAIR`] while the next byte is written. No other tool uses this value.
const PAIR_TRAP: u8 = 0x06;

/// Memory that holds code.
pub trait Text {
    /// Reads bytes, if the memory is mapped.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
    /// Writes bytes whatever the protection, if the memory is mapped. A byte, or eight aligned bytes, must become
    /// visible as a whole; otherwise threads could run a torn instruction.
    fn write(&self, address: u64, bytes: &[u8]) -> bool;
    /// Returns once every core will fetch this code anew.
    fn sync(&self);
}

/// The result for one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Outcome {
    /// Armed or disarmed.
    Done = 0,
    /// The bytes are not the file's (arming) or ours (disarming), because another tool patches here or the library was
    /// unmapped. Nothing was changed.
    Foreign = 1,
    /// The memory could not be read or written.
    Unmapped = 2,
    /// Disarmed, except the first byte, which is a foreign trap.
    ForeignOnTop = 3,
    /// Disarmed, except an inner byte that is a foreign trap, or was one until the kernel removed it.
    ForeignInside = 4,
}

/// What the caller guarantees about the other threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherThreads {
    /// The threads run. No thread blocks SIGTRAP or SIGILL while trap bytes are needed.
    #[default]
    Running,
    /// Each thread is stopped, outside all windows, until the patcher returns.
    Stopped,
}

impl OtherThreads {
    fn has_phases(self, site: &Site) -> bool {
        self == OtherThreads::Running && !site.fits_word()
    }
}

const WORD: u64 = Site::WORD;

/// The most sites that are patched together; bounds how long a site traps.
pub const BATCH: usize = 64;

struct Batch<'a, T: Text> {
    text: &'a T,
    sites: &'a [Site],
    other_threads: OtherThreads,
    outcomes: [Outcome; BATCH],
}

impl<T: Text> Batch<'_, T> {
    fn step(&mut self, phased: bool, step: impl Fn(&T, &Site, Outcome) -> bool) {
        for (site, outcome) in self.sites.iter().zip(&mut self.outcomes) {
            if self.other_threads.has_phases(site) == phased
                && !matches!(*outcome, Outcome::Foreign | Outcome::Unmapped)
                && !step(self.text, site, *outcome)
            {
                *outcome = Outcome::Unmapped;
            }
        }
        self.text.sync();
    }

    fn phase(&mut self, step: impl Fn(&T, &Site, Outcome) -> bool) {
        self.step(true, step);
    }

    fn at_once(&mut self, bytes: impl Fn(&Site) -> &[u8; 8]) {
        let other_threads = self.other_threads;
        let put = |text: &T, site: &Site, found: Outcome| match other_threads {
            OtherThreads::Running => put_word(text, site, bytes(site), found),
            OtherThreads::Stopped => put_plainly(text, site, bytes(site), found),
        };
        if self
            .sites
            .iter()
            .any(|site| !other_threads.has_phases(site))
        {
            self.step(false, put);
        }
    }

    fn has_phases(&self) -> bool {
        self.sites
            .iter()
            .any(|site| self.other_threads.has_phases(site))
    }

    fn pairs(&mut self, step: impl Fn(&T, &Site) -> bool) {
        if self.has_phases() && self.sites.iter().any(Site::is_paired) {
            self.phase(|text, site, _| !site.is_paired() || step(text, site));
        }
    }
}

fn batch<'a, T: Text>(text: &'a T, sites: &'a [Site], other_threads: OtherThreads) -> Batch<'a, T> {
    Batch {
        text,
        sites,
        other_threads,
        outcomes: [Outcome::Done; BATCH],
    }
}

/// Arms the first [`BATCH`] sites. Returns each outcome at its site's index.
pub fn arm<T: Text>(text: &T, sites: &[Site], other_threads: OtherThreads) -> [Outcome; BATCH] {
    let mut batch = batch(text, sites.get(..BATCH).unwrap_or(sites), other_threads);
    for (site, outcome) in batch.sites.iter().zip(&mut batch.outcomes) {
        *outcome = ready(text, site);
    }
    if batch.sites.iter().any(|site| site.island != 0) {
        // Islands must be visible before jumps to them.
        text.sync();
    }
    batch.at_once(|site| &site.patched);
    if !batch.has_phases() {
        return batch.outcomes;
    }
    batch.phase(|text, site, _| trap_heads(text, site));
    if batch.sites.iter().any(|site| site.len > 1) {
        batch.phase(|text, site, _| is_begun(text, site) && write_tail(text, site));
        batch.pairs(|text, site| {
            is_begun(text, site) && put_byte(text, site, Site::PAIR, &site.patched)
        });
        batch.phase(|text, site, _| is_begun(text, site) && write_first(text, site, &site.patched));
    }
    batch.outcomes
}

/// Returns whether an earlier phase's bytes are still at the site. If not, the file was mapped anew, and the next phase
/// would tear an instruction.
fn is_begun<T: Text>(text: &T, site: &Site) -> bool {
    !holds(text, site.address, &site.original, site.len)
}

/// Arms a site again if a foreign tracer removed its trap and restored the file's first byte. A patch with the file's
/// first byte needs no rearming.
pub fn rearm<T: Text>(text: &T, site: &Site) -> bool {
    let dead = site.len > 1
        && site.original.first() != site.patched.first()
        && inspect(text, site) == Outcome::Done
        && holds(text, site.address, &site.original, 1);
    if dead && site.fits_word() {
        let done = put_word(text, site, &site.patched, Outcome::Done);
        text.sync();
        return done;
    }
    if !dead || !text.write(site.address, &[INT3]) {
        return false;
    }
    text.sync();
    let done = write_first(text, site, &site.patched);
    text.sync();
    done
}

/// Restores the original bytes of the first [`BATCH`] sites.
pub fn disarm<T: Text>(text: &T, sites: &[Site], other_threads: OtherThreads) -> [Outcome; BATCH] {
    let mut batch = batch(text, sites.get(..BATCH).unwrap_or(sites), other_threads);
    for (site, outcome) in batch.sites.iter().zip(&mut batch.outcomes) {
        *outcome = inspect(text, site);
    }
    batch.at_once(|site| &site.original);
    if !batch.has_phases() {
        return batch.outcomes;
    }
    batch.phase(|text, site, found| match found {
        Outcome::ForeignOnTop => true,
        _ => text.write(site.address, &[INT3]),
    });
    batch.pairs(
        |text, site| match holds_at(text, site, Site::PAIR, &site.patched) {
            true => write_pair_trap(text, site),
            false => true,
        },
    );
    batch.phase(|text, site, _| restore_between_heads(text, site));
    batch.phase(restore_heads);
    batch.outcomes
}

/// Writes a patch, or the original bytes, by one write of the whole word. Keeps a foreign trap as the first byte.
fn put_word<T: Text>(text: &T, site: &Site, bytes: &[u8; 8], found: Outcome) -> bool {
    let at = (site.address % WORD) as usize;
    let mut word = [0; WORD as usize];
    if !text.read(site.address - at as u64, &mut word) {
        return false;
    }
    let kept = usize::from(found == Outcome::ForeignOnTop);
    let (len, before) = (site.len as usize, word);
    if let (Some(to), Some(bytes)) = (word.get_mut(at + kept..at + len), bytes.get(kept..len)) {
        to.copy_from_slice(bytes);
    }
    word == before || text.write(site.address - at as u64, &word)
}

fn put_plainly<T: Text>(text: &T, site: &Site, bytes: &[u8; 8], found: Outcome) -> bool {
    let foreign = |at: usize| match found {
        Outcome::ForeignOnTop => at == 0,
        Outcome::ForeignInside => is_head(site, at) && !holds_at(text, site, at, &site.patched),
        _ => false,
    };
    let all = 0..site.len as usize;
    match found {
        Outcome::Done => {
            let bytes = bytes.get(all).unwrap_or(&[]);
            text.write(site.address, bytes)
        }
        _ => all
            .filter(|at| !foreign(*at))
            .all(|at| put_byte(text, site, at, bytes)),
    }
}

/// Checks that the site has the file's bytes or our jump. Writes the island at once, because no thread runs it.
fn ready<T: Text>(text: &T, site: &Site) -> Outcome {
    let Some(now) = bytes_at(text, site) else {
        return Outcome::Unmapped;
    };
    let there = |bytes: &[u8; 8]| now.get(..site.len as usize) == bytes.get(..site.len as usize);
    let already = site.len > 1 && there(&site.patched);
    if !already && !there(&site.original) {
        return Outcome::Foreign;
    }
    if site.island == 0 {
        return Outcome::Done;
    }
    let mut island = [0; 8];
    if !text.read(site.island, island.get_mut(..5).unwrap_or(&mut [])) {
        return Outcome::Unmapped;
    }
    let holds = |bytes: &[u8; 8]| island.get(..5) == bytes.get(..5);
    if holds(&site.island_patched) {
        return Outcome::Done;
    }
    if !holds(&site.island_original) {
        return Outcome::Foreign;
    }
    match text.write(site.island, site.island_patched.get(..5).unwrap_or(&[])) {
        true => Outcome::Done,
        false => Outcome::Unmapped,
    }
}

/// Checks whether the site holds what [`arm`] wrote. An inner head with `int3` or the file's byte has, or had, a
/// foreign probe.
fn inspect<T: Text>(text: &T, site: &Site) -> Outcome {
    let Some(now) = bytes_at(text, site) else {
        return Outcome::Unmapped;
    };
    let is_first = |bytes: &[u8]| now.first() == bytes.first();
    let known = is_first(&site.patched) || is_first(&site.original);
    let whole = now.get(1..site.len as usize) == site.patched.get(1..site.len as usize);
    match site.len {
        1 if is_first(&[INT3]) => Outcome::Done,
        1 => Outcome::Foreign,
        _ if whole && known => Outcome::Done,
        _ if whole && is_first(&[INT3]) => Outcome::ForeignOnTop,
        _ if is_first(&site.patched) && only_heads_differ(site, &now) => Outcome::ForeignInside,
        _ => Outcome::Foreign,
    }
}

fn only_heads_differ(site: &Site, now: &[u8; 8]) -> bool {
    (1..site.len as usize).all(|at| {
        let [now, patched, original] = [now, &site.patched, &site.original].map(|all| all.get(at));
        now == patched || is_head(site, at) && (now == Some(&INT3) || now == original)
    })
}

fn bytes_at<T: Text>(text: &T, site: &Site) -> Option<[u8; 8]> {
    let mut bytes = [0; 8];
    let read = text.read(site.address, bytes.get_mut(..site.len as usize)?);
    read.then_some(bytes)
}

fn holds<T: Text>(text: &T, address: u64, bytes: &[u8; 8], len: u8) -> bool {
    let mut now = [0; 8];
    let len = len as usize;
    match (now.get_mut(..len), bytes.get(..len)) {
        (Some(now), Some(bytes)) => text.read(address, now) && now == bytes,
        _ => false,
    }
}

fn inner_heads(site: &Site) -> impl Iterator<Item = usize> {
    site.heads()
        .iter()
        .map(|head| head.offset as usize)
        .filter(|offset| *offset > 0)
}

fn is_head(site: &Site, offset: usize) -> bool {
    site.heads()
        .iter()
        .any(|head| head.offset as usize == offset)
}

fn trap_heads<T: Text>(text: &T, site: &Site) -> bool {
    let heads = inner_heads(site).all(|head| match site.is_paired() && head == Site::PAIR {
        // If the patch's byte is there, it must stay, because threads may run the jump.
        true => holds_at(text, site, head, &site.patched) || write_pair_trap(text, site),
        false => put_byte(text, site, head, &site.patched),
    });
    heads && text.write(site.address, &[INT3])
}

fn write_tail<T: Text>(text: &T, site: &Site) -> bool {
    if site.is_paired() {
        let (first, second) = (site.patched.get(1..Site::PAIR), Site::PAIR + 1);
        return text.write(site.address + 1, first.unwrap_or(&[]))
            && put_byte(text, site, second, &site.patched);
    }
    let tail = site.patched.get(1..site.len as usize).unwrap_or(&[]);
    tail.is_empty() || text.write(site.address + 1, tail)
}

fn write_first<T: Text>(text: &T, site: &Site, bytes: &[u8; 8]) -> bool {
    put_byte(text, site, 0, bytes)
}

fn restore_between_heads<T: Text>(text: &T, site: &Site) -> bool {
    (1..site.len as usize)
        .filter(|offset| !is_head(site, *offset))
        .all(|offset| put_byte(text, site, offset, &site.original))
}

/// Restores the inner heads and the first byte in one phase, because each is original or a trap. Skips foreign traps.
fn restore_heads<T: Text>(text: &T, site: &Site, found: Outcome) -> bool {
    let now = bytes_at(text, site).unwrap_or(site.patched);
    let is_ours = |at: &usize| match site.is_paired() && *at == Site::PAIR {
        true => now.get(*at) == Some(&PAIR_TRAP),
        false => now.get(*at) == site.patched.get(*at),
    };
    let mut ours = inner_heads(site).filter(is_ours);
    ours.all(|head| put_byte(text, site, head, &site.original))
        && (found == Outcome::ForeignOnTop || write_first(text, site, &site.original))
}

fn write_pair_trap<T: Text>(text: &T, site: &Site) -> bool {
    text.write(site.address + Site::PAIR as u64, &[PAIR_TRAP])
}

fn holds_at<T: Text>(text: &T, site: &Site, offset: usize, bytes: &[u8; 8]) -> bool {
    let mut now = [0];
    text.read(site.address + offset as u64, &mut now) && now.first() == bytes.get(offset)
}

fn put_byte<T: Text>(text: &T, site: &Site, offset: usize, bytes: &[u8; 8]) -> bool {
    let byte = bytes.get(offset..offset + 1).unwrap_or(&[]);
    text.write(site.address + offset as u64, byte)
}
