//! Twenty words of each thread, in the static TLS block. [`tiptoe_wire::tls`] has the words that trampolines (generated
//! code) and tiptoe use.
//!
//! | word | holds |
//! |---|---|
//! | 0 | the pointer to the thread's descriptor ([`tiptoe_uprobe::claim`]) |
//! | 1 | the owned signals that the thread believes it blocks; in the upper half the generation |
//! | 2 | recall: whether a signal was held back since the last hook (interception) of a system call began |
//! | 3, 4 | the present or last wait: the address after the call, with the call's number; the trampoline |
//! | 5, 6, 7 | signals held for this thread: the thread's id; SIGILL's sender; SIGTRAP's sender |
//! | 8..16 | two masks for the kernel, each: mask, pointer to it, length, the program's mask |
//! | 16 | which of the two masks is next |
//! | 17 | the end of the thread's frames, our records of its open calls |
//! | 18 | where the trampoline of a clone or clone3 continues after the call |
//! | 19 | the end of the frames while the thread may not read the counter ([`crate::forbidden`]), else 0 |
//!
//! The agent *owns* SIGTRAP and SIGILL once it has taken them over, which begins a *generation*. Records of an earlier
//! generation are invalid. `thread_local!` would call `__tls_get_addr`, which may allocate.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tiptoe_sys::raw::{self, gettid, nr};
use tiptoe_uprobe::claim::Descriptor;
use tiptoe_wire::tls::NUMBER_SHIFT;

use crate::text;

global_asm!(
    ".section .tdata,\"awT\",@progbits",
    ".p2align 3",
    ".hidden tiptoe_tls_descriptor",
    ".type tiptoe_tls_descriptor, @object",
    ".size tiptoe_tls_descriptor, 160",
    "tiptoe_tls_descriptor: .quad {nobody}",
    ".zero 128",
    ".quad {noframes} + 4096",
    ".zero 16",
    ".text",
    nobody = sym EMPTY_DESCRIPTOR,
    noframes = sym NOFRAMES,
);

const SIGNALS: u64 = 0xffff_ffff;
const BELIEVED: i64 = tiptoe_wire::tls::BELIEVED;
const RECALL: i64 = tiptoe_wire::tls::RECALL;
const WAIT_CALL: i64 = tiptoe_wire::tls::WAIT_CALL;
const TRAMPOLINE: i64 = tiptoe_wire::tls::TRAMPOLINE;
pub const HELD_BY: i64 = 40;
/// The senders of a held SIGILL and SIGTRAP, with the highest bit set.
pub const HELD_SENDERS: [i64; 2] = [48, 56];
const MASKS: [i64; 2] = [tiptoe_wire::tls::MASK, 96];
const TURN: i64 = 128;
const FRAMES: i64 = tiptoe_wire::tls::FRAMES;
/// The word for `tiptoe_clone_cleared` and `tiptoe_clone_born`. A child shares its parent's word, unless it has another
/// block or memory.
pub const CLONED: i64 = 144;
const HIDDEN: i64 = 152;

/// The number of the last generation. It outlives sessions, because threads keep words with an earlier number.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// A page of empty frames. Word 17 of a thread without frames points to the page's end, because at the end of any page
/// a trampoline asks the agent for memory. A return finds an empty frame.
#[repr(C, align(4096))]
pub struct Noframes([u64; 1024]);

static NOFRAMES: Noframes = Noframes([0; 1024]);

/// The descriptor of a thread without one: 64 zero bytes, never written.
#[repr(C, align(64))]
pub struct EmptyDescriptor([u64; 8]);

static EMPTY_DESCRIPTOR: EmptyDescriptor = EmptyDescriptor([0; 8]);

/// Returns the offset of the first word from %fs, for trampolines.
pub fn descriptor_offset() -> i64 {
    let offset: i64;
    // SAFETY: the instruction reads the offset that the loader put into the GOT.
    unsafe {
        asm!("mov {}, qword ptr [rip + tiptoe_tls_descriptor@GOTTPOFF]", out(reg) offset,
             options(nostack, pure, readonly, preserves_flags));
    }
    offset
}

fn load(word: i64) -> u64 {
    let value: u64;
    // SAFETY: the offset is one of our own words in this thread's block.
    unsafe {
        asm!("mov {}, qword ptr fs:[{}]", out(reg) value, in(reg) descriptor_offset() + word,
             options(nostack, readonly, preserves_flags));
    }
    value
}

fn store(word: i64, value: u64) {
    // SAFETY: as in `load`.
    unsafe {
        asm!("mov qword ptr fs:[{}], {}", in(reg) descriptor_offset() + word, in(reg) value,
             options(nostack, preserves_flags));
    }
}

pub fn thread_block() -> u64 {
    let base: u64;
    // SAFETY: the x86-64 ABI puts the block's address at its beginning.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) base,
             options(nostack, pure, readonly, preserves_flags));
    }
    base
}

pub fn descriptor() -> u64 {
    load(0)
}

pub fn set_descriptor(descriptor: &'static Descriptor) {
    store(0, core::ptr::from_ref(descriptor) as u64);
}

/// Returns the initial values of words 0 and 17; the others begin as 0.
pub fn beginnings() -> [u64; 2] {
    [
        core::ptr::from_ref(&EMPTY_DESCRIPTOR) as u64,
        core::ptr::from_ref(&NOFRAMES) as u64 + 4096,
    ]
}

/// Whether the C library's blocks contain their own address twice, as glibc's do. Relaxed: a thread of the program
/// stores it before the first patch, and it never changes.
static IS_GLIBCS: AtomicBool = AtomicBool::new(false);

pub fn learn_layout() {
    let own = thread_block();
    // SAFETY: the calling thread's own block, which begins with these words in each C library.
    let [_, _, own_again, own_next] = unsafe { *(own as *const [u64; 4]) };
    // In musl's block these two words point to the neighbours in musl's list of threads or, if there is one thread, to
    // the block itself.
    IS_GLIBCS.store(own_again == own && own_next != own, Ordering::Relaxed);
}

/// Returns whether the C library laid out the calling thread's block. In any other block, the memory at our words'
/// offsets belongs to the program.
pub fn is_on_libcs_block() -> bool {
    const ARCH_GET_FS: usize = 0x1003;
    let mut block = 0u64;
    let args = [ARCH_GET_FS, &raw mut block as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes one word, which lives through the call.
    let is_known = unsafe { raw::call(nr::ARCH_PRCTL, args) }.is_ok();
    if !is_known || block == 0 {
        return !is_known;
    }
    let again: u64;
    // SAFETY: the block is not the null page, and its first words are mapped, because the code that runs on it uses
    // them.
    unsafe {
        asm!("mov {}, qword ptr fs:[16]", out(reg) again, options(nostack, readonly, preserves_flags));
    }
    thread_block() == block && (again == block || !IS_GLIBCS.load(Ordering::Relaxed))
}

/// Returns whether the program's C library laid out a block, which may be unmapped.
pub fn is_laid_out(block: u64) -> bool {
    let is_glibcs = IS_GLIBCS.load(Ordering::Relaxed);
    let words: Option<[u64; 3]> = text::read_words(block);
    words.is_some_and(|[begin, _, again]| begin == block && (again == block || !is_glibcs))
}

/// Sets the words of a thread that is about to start. The words are 0 if libc made the block before it loaded the
/// agent.
///
/// # Safety
/// libc must have made the block, for a thread that does not run yet.
pub unsafe fn give_words(block: u64) {
    let word = |offset: i64| {
        let at = block.wrapping_add_signed(descriptor_offset() + offset);
        // SAFETY: libc reserved these words in each of its blocks when it loaded the agent; the caller ensures that
        // libc made this block.
        unsafe { &*(at as *const core::sync::atomic::AtomicU64) }
    };
    let [nobody, noframes] = beginnings();
    // Relaxed: the thread's creation publishes the words.
    if word(0).load(Ordering::Relaxed) == 0 {
        word(0).store(nobody, Ordering::Relaxed);
        word(FRAMES).store(noframes, Ordering::Relaxed);
    }
}

pub fn begin_generation() {
    GENERATION.fetch_add(1, Ordering::Relaxed); // Relaxed: published with the ownership
}

pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed) // Relaxed: as in `begin_generation`
}

/// Returns the owned signals in a thread's word 1; 0 if an earlier generation wrote the word.
pub fn blocked_of(word: u64) -> u64 {
    let now = (word >> 32) as u32 == generation();
    if now { word & SIGNALS } else { 0 }
}

/// Returns the end of this thread's frames; `None` if it has none, or if its words are not set.
pub fn frames() -> Option<u64> {
    let [_, none] = beginnings();
    let end = match load(HIDDEN) {
        0 => load(FRAMES),
        hidden => hidden,
    };
    Some(end).filter(|end| *end != none && *end != 0)
}

pub fn set_frames(end: u64) {
    let word = if are_frames_hidden() { HIDDEN } else { FRAMES };
    store(word, end);
}

#[inline(always)]
pub fn are_frames_hidden() -> bool {
    load(HIDDEN) != 0
}

/// Makes this thread's trampolines call the agent at each entry and return ([`crate::forbidden`]).
pub fn hide_frames() {
    let [_, none] = beginnings();
    if !are_frames_hidden() {
        let end = load(FRAMES);
        store(HIDDEN, if end == 0 { none } else { end });
        store(FRAMES, none);
    }
}

pub fn show_frames() {
    let end = load(HIDDEN);
    if end != 0 {
        store(FRAMES, end);
        store(HIDDEN, 0);
    }
}

pub fn blocked() -> u64 {
    blocked_of(load(BELIEVED))
}

pub fn set_blocked(mask: u64) {
    store(BELIEVED, mask & SIGNALS | u64::from(generation()) << 32);
}

pub fn set_cloned(return_address: u64) {
    store(CLONED, return_address);
}

/// As [`set_cloned`], for the new thread.
///
/// # Safety
/// As for [`give_words`].
pub unsafe fn set_cloned_of(block: u64, return_address: u64) {
    let at = block.wrapping_add_signed(descriptor_offset() + CLONED);
    // SAFETY: as in `give_words`.
    let word = unsafe { &*(at as *const core::sync::atomic::AtomicU64) };
    // Relaxed: the thread's creation publishes the word.
    word.store(return_address, Ordering::Relaxed);
}

/// Sets whether a thread that is between the hook and its system call must run the hook again.
pub fn recall(again: bool) {
    store(RECALL, again.into());
}

/// A system call in which a thread may wait under another mask.
#[derive(Clone, Copy)]
pub struct Call {
    pub number: u64,
    /// The address after the call's instruction; 0 if there is no call.
    pub return_address: u64,
    /// The address to which the call's hook returns.
    pub trampoline: u64,
}

pub fn call() -> Call {
    let word = load(WAIT_CALL);
    Call {
        number: word >> NUMBER_SHIFT,
        return_address: word & ((1 << NUMBER_SHIFT) - 1),
        trampoline: load(TRAMPOLINE),
    }
}

/// The trampoline must be stored first, because the other word makes the record valid.
pub fn set_call(call: Call) {
    store(TRAMPOLINE, call.trampoline);
    store(WAIT_CALL, call.return_address | call.number << NUMBER_SHIFT);
}

fn held_word(signal: usize) -> i64 {
    let [ill, trap] = HELD_SENDERS;
    if signal == 4 { ill } else { trap }
}

/// Holds back a signal that was sent to this thread. Only its sender is recorded.
pub fn hold(signal: usize, sender: u64) {
    let tid = gettid();
    if load(HELD_BY) != tid.into() {
        HELD_SENDERS.into_iter().for_each(|word| store(word, 0)); // A fork copied the parent's words.
        store(HELD_BY, tid.into());
    }
    store(held_word(signal), sender | 1 << 63);
}

pub fn take_held(signal: usize) -> Option<u64> {
    let sender = held_sender(signal);
    if sender.is_some() {
        store(held_word(signal), 0);
    }
    sender
}

pub fn held_sender(signal: usize) -> Option<u64> {
    let sender = load(held_word(signal));
    (sender != 0 && load(HELD_BY) == gettid().into()).then_some(sender & !(1 << 63))
}

pub struct Mask {
    at: i64,
}

impl Mask {
    /// Stores a mask for the kernel, and the program's mask `given`. Two places are used in turn, so that a signal
    /// handler in between can store its own masks.
    pub fn new(given: u64, kernels: u64) -> Mask {
        let [first, second] = MASKS;
        let turn = load(TURN);
        store(TURN, turn ^ 1);
        let at = if turn == 0 { first } else { second };
        let words = [kernels, address_of(at), size_of::<u64>() as u64, given];
        for (index, word) in words.into_iter().enumerate() {
            store(at + index as i64 * 8, word);
        }
        Mask { at }
    }

    pub fn at(address: u64) -> Option<Mask> {
        let found = MASKS.into_iter().find(|at| address_of(*at) == address);
        found.map(|at| Mask { at })
    }

    pub fn address(&self) -> u64 {
        address_of(self.at)
    }

    /// Returns the address of the pair that pselect6 takes: the mask's address and length.
    pub fn pair(&self) -> u64 {
        address_of(self.at + 8)
    }

    pub fn given(&self) -> u64 {
        load(self.at + 24)
    }
}

fn address_of(word: i64) -> u64 {
    thread_block().wrapping_add_signed(descriptor_offset() + word)
}
