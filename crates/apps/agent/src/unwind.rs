//! Describes generated code to unwinders, so that exceptions, cancellation and `backtrace()` see
//! the program as it is without us.
//!
//! A return address on the stack may be a thunk's. A signal may find a thread in a thunk, in a
//! trampoline, or in the agent that a trampoline called. An unwinder that finds such an address
//! asks libc for the object that contains it: by `_dl_find_object`, or in older versions by
//! `dl_iterate_phdr`. Both are intercepted, and for generated code they answer with an object of
//! our own.
//!
//! A thunk's unwind information says that this is no frame, and that the caller is in the thunk's
//! record. A trampoline's says that this is the frame of the probed function or, where calls return
//! that the trampoline follows by itself, the same as a thunk's (`tiptoe-patch`, `unwind`). The
//! agent itself is an object that libc knows. So any unwinder works, even one that is linked into
//! the program. Frames that the unwinder leaves are counted like those of a longjmp.
//!
//! `_Unwind_Backtrace` shows every frame to its caller's function. We call it in the program's
//! place, with a function that skips our frames. `_Unwind_ForcedUnwind` does so too, but also
//! leaves frames ([`crate::forced`]).
//!
//! `dlsym` and `dlopen` inspect their return address, which is a thunk if a followed function
//! tail-calls them. For the program that function has returned: its return is counted, and the true
//! return address is restored.
//!
//! If calls are followed, these interceptors must stay in the program for ever, because frames may
//! return through thunks at any time after a detach.

use core::cell::Cell;

use tiptoe_uprobe::thunks::STRIDE;
use tiptoe_wire::calls::intercepted;

use crate::arenas::UnwindRange;
use crate::calls;
use crate::forced;
use crate::gate;
use crate::hooks::Frame;
use crate::libraries;
use crate::memory::PAGE;
use crate::shared::{self, Shared};

/// The distance from the trampoline's return address to the copy of the displaced instructions
/// (`tiptoe-patch`, `trampoline`).
const COPY: u64 = 14;

/// The most unwinders in one process: libgcc's, and those that objects carry. Each has three
/// numbers, one per function.
pub const UNWINDERS: usize = 24;

/// Handles an interception. Returns the value with which the function must return at once; `None`
/// if it must run.
pub fn intercept(what: u32, frame: &mut Frame) -> Option<u64> {
    let shared = shared::get()?;
    match what {
        intercepted::FIND_OBJECT => find_object(shared, frame),
        intercepted::ITERATE => iterate(shared, frame),
        intercepted::LOOKER => {
            calls::return_early(shared, frame.return_address());
            None
        }
        intercepted::CHANGED => {
            libraries::changed();
            None
        }
        intercepted::JUMP => {
            gate::jump(frame);
            None
        }
        intercepted::FORCED..intercepted::CHANGED => {
            forced::begin(shared, (what - intercepted::FORCED) as usize, frame);
            None
        }
        landing if landing >= intercepted::LAND => {
            gate::land(shared, (landing - intercepted::LAND) as usize, frame);
            None
        }
        backtrace => filter_backtrace((backtrace - intercepted::BACKTRACE) as usize, frame),
    }
}

/// glibc's `struct dl_find_object` on x86-64.
#[repr(C)]
struct FoundObject {
    flags: u64,
    start: u64,
    end: u64,
    link_map: u64,
    eh_frame: u64,
    reserved: [u64; 7],
}

fn unwind_range(shared: &Shared, address: u64) -> Option<UnwindRange> {
    let (code, made) = shared.thunks.made();
    let thunks = UnwindRange {
        start: code,
        end: code + u64::from(made) * STRIDE,
        info: shared.unwind_info() as u64,
        direct: None,
    };
    match (thunks.start..thunks.end).contains(&address) {
        true => Some(thunks),
        false => shared.arenas.unwind_range(address),
    }
}

fn find_object(shared: &Shared, frame: &Frame) -> Option<u64> {
    let range = unwind_range(shared, frame.rdi)?;
    let found = FoundObject {
        flags: 0,
        start: range.start,
        end: range.end,
        link_map: 0,
        eh_frame: range.info,
        reserved: [0; 7],
    };
    // SAFETY: the function's second argument is room for its answer, by its contract.
    unsafe { (frame.rsi as *mut FoundObject).write(found) };
    Some(0)
}

/// `struct dl_phdr_info` in its first version, because unwinders cache nothing of an object with
/// only these fields.
#[repr(C)]
struct ObjectInfo {
    address: u64,
    name: *const u8,
    headers: *const Header,
    count: u64,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_size: u64,
    size: u64,
    align: u64,
}

impl Header {
    const LOAD: u32 = 1;
    const EH_FRAME: u32 = 0x6474_e550;

    fn new(kind: u32, address: u64, size: u64) -> Header {
        const READ_EXEC: u32 = 5;
        Header {
            kind,
            flags: READ_EXEC,
            offset: 0,
            address,
            physical: address,
            file_size: size,
            size,
            align: PAGE as u64,
        }
    }
}

type Visit = unsafe extern "C" fn(*const ObjectInfo, usize, u64) -> i32;

/// Handles `dl_iterate_phdr`. Every unwinder passes its own record, with the address to look up in
/// one of the first words. Callers that look for anything else never see our object.
fn iterate(shared: &Shared, frame: &Frame) -> Option<u64> {
    let range = looked_for(shared, frame.rsi)?;
    let headers = [
        Header::new(Header::LOAD, range.start, range.end - range.start),
        Header::new(Header::EH_FRAME, range.info, INFO as u64),
    ];
    let info = ObjectInfo {
        address: 0,
        name: c"".as_ptr().cast(),
        headers: headers.as_ptr(),
        count: headers.len() as u64,
    };
    // SAFETY: the program passes this function to be called with its second argument.
    let visit: Visit = unsafe { core::mem::transmute(frame.rdi as usize) };
    // SAFETY: as above. The records outlive the call.
    Some(unsafe { visit(&info, size_of::<ObjectInfo>(), frame.rsi) } as u64)
}

fn looked_for(shared: &Shared, record: u64) -> Option<UnwindRange> {
    const WORDS: u64 = 4;
    if record == 0 || !record.is_multiple_of(8) {
        return None;
    }
    let end = (record | (PAGE as u64 - 1)) + 1;
    let words = (end.saturating_sub(record) / 8).min(WORDS);
    (0..words).find_map(|word| {
        // SAFETY: the word is in the page of a record that the caller passes to its own function.
        let value = unsafe { (record as *const u64).add(word as usize).read() };
        unwind_range(shared, value)
    })
}

/// One walk: the function to show frames to, its argument, and the unwinder's function for a
/// frame's address.
struct Walk {
    show: u64,
    argument: u64,
    address_of: u64,
    stage: Cell<WalkStage>,
}

/// The kind of a walk's next frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkStage {
    /// A frame of our own, which led to the unwinder. The last one is a trampoline's.
    Ours,
    /// The unwinder's own frame, at its entry.
    Unwinder,
    Programs,
}

impl WalkStage {
    fn next(self, in_trampoline: bool) -> WalkStage {
        match self {
            WalkStage::Ours if !in_trampoline => WalkStage::Ours,
            WalkStage::Ours => WalkStage::Unwinder,
            WalkStage::Unwinder | WalkStage::Programs => WalkStage::Programs,
        }
    }
}

type Show = unsafe extern "C" fn(*mut u8, u64) -> i32;
/// `_Unwind_GetIP`.
pub type AddressOf = unsafe extern "C" fn(*mut u8) -> u64;
type Backtrace = unsafe extern "C" fn(extern "C" fn(*mut u8, &Walk) -> i32, &Walk) -> i32;

/// Runs the unwinder's walk with our own function. The walk begins with frames of ours and the
/// unwinder's, which must be skipped, like all others of ours.
fn filter_backtrace(unwinder: usize, frame: &Frame) -> Option<u64> {
    let walk = Walk {
        show: frame.rdi,
        argument: frame.rsi,
        address_of: shared::get()?.unwinder(unwinder)?,
        stage: Cell::new(WalkStage::Ours),
    };
    let original = (frame.back + COPY) as usize;
    // SAFETY: this is the copy of the function's displaced instructions, which continues in the
    // function.
    let backtrace = unsafe { core::mem::transmute::<usize, Backtrace>(original) };
    // SAFETY: the program makes the same call. The record outlives it.
    Some(unsafe { backtrace(show, &walk) } as u64)
}

/// Shows a frame of the program's, and skips one of ours.
extern "C" fn show(context: *mut u8, walk: &Walk) -> i32 {
    // SAFETY: this is `_Unwind_GetIP` of the unwinder that made the context.
    let address =
        unsafe { core::mem::transmute::<usize, AddressOf>(walk.address_of as usize)(context) };
    let stage = walk.stage.get();
    let is_ours = shared::get().is_some_and(|shared| {
        walk.stage.set(stage.next(shared.arenas.hold(address)));
        stage != WalkStage::Programs || is_ours(shared, address)
    });
    if is_ours {
        return 0;
    }
    // SAFETY: this is the program's function, with the argument that the program passed.
    unsafe { core::mem::transmute::<usize, Show>(walk.show as usize)(context, walk.argument) }
}

/// Returns whether an address is in code of ours: the agent, a trampoline or a thunk.
pub fn is_ours(shared: &Shared, address: u64) -> bool {
    unsafe extern "C" {
        static __ehdr_start: u8;
        static etext: u8;
    }
    // The linker's names for the start of the agent and the end of its code.
    let agent = (&raw const __ehdr_start) as u64..(&raw const etext) as u64;
    agent.contains(&address) || shared.thunks.at(address).is_some() || shared.arenas.hold(address)
}

/// The length of the unwind information: `.eh_frame_hdr` with one entry, a CIE, an FDE, and the
/// end.
pub const INFO: usize = HDR + CIE + FDE + 4;
const HDR: usize = 20;
const CIE: usize = 20;
const FDE: usize = 100;

/// Returns the unwind information at `at` for code at `code`, where a thunk's record is `record_distance`
/// bytes after its code.
///
/// An instruction's address without its low five bits is the thunk's address. The first word of the
/// thunk's record is the address to continue at. A thunk's frame is only what is on the stack at
/// each instruction ([`PUSHED`]): nothing at the address to which the called function returns.
///
/// libgcc distinguishes frames by their canonical frame address, and takes the first frame with the
/// right address for the one with the handler. So the frame after the last thunk must not have the
/// address of any thunk's frame. It differs by 8 bytes: the high half of the record's last word
/// holds the difference.
pub fn info(at: u64, code: u64, len: u64, record_distance: i32) -> [u8; INFO] {
    const RETURN_ADDRESS: u8 = 16;
    let mut bytes = Bytes {
        all: [0; INFO],
        len: 0,
    };
    let (cie, fde) = (at + HDR as u64, at + (HDR + CIE) as u64);
    // .eh_frame_hdr: version, encodings (pcrel, udata4, datarel), .eh_frame, the table.
    bytes
        .put(&[1, 0x1b, 0x03, 0x3b])
        .relative(cie, at + 4)
        .word(1);
    bytes.relative(code, at).relative(fde, at);
    // CIE: version 1, "zR", factors 1 and -8, pcrel addresses.
    bytes
        .word(CIE as u32 - 4)
        .word(0)
        .put(b"\x01zR\0\x01\x78")
        .put(&[RETURN_ADDRESS, 1, 0x1b, 0, 0, 0]);
    bytes.word(FDE as u32 - 4).word((fde + 4 - cie) as u32);
    bytes.relative(code, fde + 8).word(len as u32).put(&[0]);
    // def_cfa_expression: the caller's stack pointer, minus the record's last word shr 32.
    bytes
        .put(&[0x0f, 39])
        .stack_pointer()
        .record(record_distance + 24);
    bytes.put(&[0x06, 0x08, 32, 0x25, 0x1c]);
    // val_expression of %rsp.
    bytes.put(&[0x16, 7, 23]).stack_pointer();
    // expression of the return address: the record's first word.
    bytes
        .put(&[0x10, RETURN_ADDRESS, 11])
        .record(record_distance);
    bytes.all
}

/// The words that a thunk has on the stack at each byte of its code, in three bits each: what its
/// trampoline pushed and the return address, one less after each `pop`; then zero, and at the end
/// the return address again.
const PUSHED: u64 = 4 | 3 << 3 | 2 << 6 | 1 << 9 | 1 << 60;

struct Bytes {
    all: [u8; INFO],
    len: usize,
}

impl Bytes {
    fn put(&mut self, bytes: &[u8]) -> &mut Bytes {
        let room = self.all.iter_mut().skip(self.len);
        room.zip(bytes).for_each(|(to, byte)| *to = *byte);
        self.len += bytes.len();
        self
    }

    /// Pushes the address of a word of the thunk's record: the code address (register 16), rounded down to the thunk's
    /// 32 bytes, plus `record_distance`. In DWARF: breg16(0) const1s(-32) and const4s(record_distance) plus.
    fn record(&mut self, record_distance: i32) -> &mut Bytes {
        self.put(&[0x80, 0, 0x09, 0xe0, 0x1a, 0x0d]);
        self.word(record_distance as u32).put(&[0x22])
    }

    /// Pushes the caller's stack pointer: breg7(0) and const8u(PUSHED) breg16(0) lit31 and lit3 mul
    /// shr lit7 and lit3 shl plus.
    fn stack_pointer(&mut self) -> &mut Bytes {
        self.put(&[0x77, 0, 0x0e]).put(&PUSHED.to_le_bytes());
        self.put(&[0x80, 0, 0x4f, 0x1a, 0x33, 0x1e, 0x25]);
        self.put(&[0x37, 0x1a, 0x33, 0x24, 0x22])
    }

    fn word(&mut self, word: u32) -> &mut Bytes {
        self.put(&word.to_le_bytes())
    }

    fn relative(&mut self, to: u64, from: u64) -> &mut Bytes {
        self.word(to.wrapping_sub(from) as u32)
    }
}
