//! Changing code while other threads run it, without stopping them.
//!
//! State of a window of 5 (or 2) bytes at a function's entry, `H` a head:
//!
//! | phase | first byte | inner heads | other bytes | a thread that arrives |
//! |---|---|---|---|---|
//! | original | original | original | original | runs the original |
//! | trapped | `int3` | trap | original | is sent to the trampoline by the handler |
//! | tailed | `int3` | trap | jump's | is sent to the trampoline by the handler |
//! | armed | `jmp` | trap | jump's | jumps; a late one inside the window traps |
//!
//! Between two phases every core refetches ([`Text::sync`]). Disarming walks
//! the table upwards. The inner heads' final bytes *are* trap bytes, chosen so
//! by the planner, therefore a thread that was preempted inside the window for
//! a minute still finds a trap where its next instruction was.
//!
//! The scheme follows the published idea of punned jumps with trapping
//! interiors (LiteInst, PLDI 2017; libpatch), with membarrier(2) in place of a
//! waiting time.

use tiptoe_wire::Site;

const INT3: u8 = 0xcc;

/// Memory that holds code, as the patcher needs it.
pub trait Text {
    /// Reads bytes; false where the memory is not there.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
    /// Writes bytes whatever the protection; false where the memory is not there.
    fn write(&self, address: u64, bytes: &[u8]) -> bool;
    /// Returns once every core that runs this code will fetch it anew.
    fn sync(&self);
}

/// What became of one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Outcome {
    /// As asked.
    Done = 0,
    /// The bytes there are not the file's (arming) or not ours (disarming):
    /// somebody else patches here, or the library is gone. Left alone.
    Foreign = 1,
    /// The memory could not be read or written.
    Unmapped = 2,
    /// Disarmed but for the first byte, which somebody else's trap holds.
    ForeignOnTop = 3,
}

/// Most sites patched between two refetches: bounds how long a site traps.
pub const BATCH: usize = 64;

/// A batch of sites on its way through the phases.
struct Batch<'a, T: Text> {
    text: &'a T,
    sites: &'a [Site],
    outcomes: [Outcome; BATCH],
}

impl<T: Text> Batch<'_, T> {
    /// Runs one phase over the sites that are still well; a step that fails
    /// takes its site out of the later phases.
    fn phase(&mut self, step: impl Fn(&T, &Site, Outcome) -> bool) {
        for (site, outcome) in self.sites.iter().zip(&mut self.outcomes) {
            if matches!(*outcome, Outcome::Done | Outcome::ForeignOnTop)
                && !step(self.text, site, *outcome)
            {
                *outcome = Outcome::Unmapped;
            }
        }
        self.text.sync();
    }
}

fn batch<'a, T: Text>(text: &'a T, sites: &'a [Site]) -> Batch<'a, T> {
    Batch {
        text,
        sites,
        outcomes: [Outcome::Done; BATCH],
    }
}

/// Arms at most [`BATCH`] sites; the rest of a longer slice is left alone.
/// Each outcome stands at its site's index.
pub fn arm<T: Text>(text: &T, sites: &[Site]) -> [Outcome; BATCH] {
    let mut batch = batch(text, sites.get(..BATCH).unwrap_or(sites));
    for (site, outcome) in batch.sites.iter().zip(&mut batch.outcomes) {
        *outcome = ready(text, site);
    }
    batch.phase(|text, site, _| trap_heads(text, site));
    if batch.sites.iter().any(|site| site.len > 1) {
        batch.phase(|text, site, _| write_tail(text, site));
        batch.phase(|text, site, _| write_first(text, site, &site.patched));
    }
    batch.outcomes
}

/// Arms one site again whose first byte somebody else's trap had taken and put
/// back as the file has it; false where it is not in that state.
pub fn rearm<T: Text>(text: &T, site: &Site) -> bool {
    let dead = site.len > 1
        && ours(text, site) == Outcome::Done
        && holds(text, site.address, &site.original, 1);
    if !dead || !text.write(site.address, &[INT3]) {
        return false;
    }
    text.sync();
    let done = write_first(text, site, &site.patched);
    text.sync();
    done
}

/// Puts the original bytes of at most [`BATCH`] sites back.
pub fn disarm<T: Text>(text: &T, sites: &[Site]) -> [Outcome; BATCH] {
    let mut batch = batch(text, sites.get(..BATCH).unwrap_or(sites));
    for (site, outcome) in batch.sites.iter().zip(&mut batch.outcomes) {
        *outcome = ours(text, site);
    }
    batch.phase(|text, site, found| match found {
        Outcome::ForeignOnTop => true,
        _ => text.write(site.address, &[INT3]),
    });
    batch.phase(|text, site, _| restore_between_heads(text, site));
    batch.phase(restore_heads);
    batch.outcomes
}

/// Whether the site still holds the file's bytes, and puts the island in place:
/// padding that nobody runs, so it needs no phases.
fn ready<T: Text>(text: &T, site: &Site) -> Outcome {
    if !holds(text, site.address, &site.original, site.len) {
        return Outcome::Foreign;
    }
    if site.island == 0 || holds(text, site.island, &site.island_patched, 5) {
        return Outcome::Done;
    }
    if !holds(text, site.island, &site.island_original, 5) {
        return Outcome::Foreign;
    }
    match text.write(site.island, site.island_patched.get(..5).unwrap_or(&[])) {
        true => Outcome::Done,
        false => Outcome::Unmapped,
    }
}

/// Whether the site holds what [`arm`] put there. A jump whose first byte is a
/// trap that we did not put there has somebody else's probe on top.
fn ours<T: Text>(text: &T, site: &Site) -> Outcome {
    let mut bytes = [0; 8];
    let len = site.len as usize;
    let Some(now) = bytes.get_mut(..len) else {
        return Outcome::Foreign;
    };
    if !text.read(site.address, now) {
        return Outcome::Unmapped;
    }
    let first = now.first().copied();
    let known = [
        site.patched.first().copied(),
        site.original.first().copied(),
    ];
    if now.get(1..) != site.patched.get(1..len) {
        Outcome::Foreign
    } else if known.contains(&first) && (len > 1 || first == Some(INT3)) {
        Outcome::Done
    } else if len > 1 && first == Some(INT3) {
        Outcome::ForeignOnTop
    } else {
        Outcome::Foreign
    }
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
    let heads = inner_heads(site).all(|head| put_byte(text, site, head, &site.patched));
    heads && text.write(site.address, &[INT3])
}

fn write_tail<T: Text>(text: &T, site: &Site) -> bool {
    let tail = site.patched.get(1..site.len as usize).unwrap_or(&[]);
    tail.is_empty() || text.write(site.address + 1, tail)
}

fn write_first<T: Text>(text: &T, site: &Site, bytes: &[u8; 8]) -> bool {
    put_byte(text, site, 0, bytes)
}

/// The bytes that are no heads: nobody can begin an instruction there.
fn restore_between_heads<T: Text>(text: &T, site: &Site) -> bool {
    (1..site.len as usize)
        .filter(|offset| !is_head(site, *offset))
        .all(|offset| put_byte(text, site, offset, &site.original))
}

/// The heads, each one byte and so atomic; the first last, and only if ours.
fn restore_heads<T: Text>(text: &T, site: &Site, found: Outcome) -> bool {
    inner_heads(site).all(|head| put_byte(text, site, head, &site.original))
        && (found == Outcome::ForeignOnTop || write_first(text, site, &site.original))
}

fn put_byte<T: Text>(text: &T, site: &Site, offset: usize, bytes: &[u8; 8]) -> bool {
    let byte = bytes.get(offset..offset + 1).unwrap_or(&[]);
    text.write(site.address + offset as u64, byte)
}
