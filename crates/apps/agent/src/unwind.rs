//! What unwinders are told of generated code, so that exceptions, cancellation and
//! `backtrace()` find the program as it is without us.
//!
//! A return address on the stack may be a thunk's; and a signal may find a thread in a
//! thunk, in a trampoline, or in the agent that one calls. An unwinder that meets such an
//! address asks libc which object it lies in: `_dl_find_object`, or in older ones
//! `dl_iterate_phdr`. Both are intercepted at their entry and answer, for generated code
//! only, with an object of our own. Its unwind information says of a thunk: this frame is
//! none, its caller is found in the thunk's record. Of a trampoline: the program stands
//! here, or, where calls return to it that it follows by itself, as of a thunk
//! (`tiptoe-patch`, `unwind`). The agent itself is an object that libc knows.
//! So nothing depends on which unwinder it is, or whether it is linked into the program;
//! and frames that it leaves are counted as those of a longjmp are.
//!
//! `_Unwind_Backtrace` shows every frame to a function of its caller's. It is called in
//! the program's place, with a function that passes all frames of ours over.
//!
//! `dlsym` and `dlopen` look at whom they return to, which is a thunk where a followed
//! function tail-calls them. There that function has returned as far as anybody can
//! tell: its return is counted, and the true return address put in its place.
//!
//! Where calls are followed these interceptions stay in the program for good: frames may
//! return through thunks at any time after a detach.

use core::cell::Cell;

use tiptoe_uprobe::thunks::STRIDE;
use tiptoe_wire::calls::intercepted;

use crate::arenas::Told;
use crate::calls;
use crate::gate;
use crate::hooks::Frame;
use crate::libraries;
use crate::memory::PAGE;
use crate::shared::{self, Shared};

/// From the trampoline's return to the copy of what it displaced (`tiptoe-patch`,
/// `trampoline`).
const COPY: u64 = 14;

/// Unwinders in one process: libgcc's, and those that objects carry.
/// Two of their functions are named for each.
pub const UNWINDERS: usize = 16;

/// Serves an interception: what the function returns at once, or `None` where it goes
/// on as ever.
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

/// What is told of generated code at an address.
fn told(shared: &Shared, address: u64) -> Option<Told> {
    let (code, made) = shared.thunks.made();
    let thunks = Told {
        start: code,
        end: code + u64::from(made) * STRIDE,
        info: shared.unwind_info() as u64,
        direct: None,
    };
    match (thunks.start..thunks.end).contains(&address) {
        true => Some(thunks),
        false => shared.arenas.told(address),
    }
}

fn find_object(shared: &Shared, frame: &Frame) -> Option<u64> {
    let told = told(shared, frame.rdi)?;
    let found = FoundObject {
        flags: 0,
        start: told.start,
        end: told.end,
        link_map: 0,
        eh_frame: told.info,
        reserved: [0; 7],
    };
    // SAFETY: the function's contract: its second argument is room for its answer.
    unsafe { (frame.rsi as *mut FoundObject).write(found) };
    Some(0)
}

/// `struct dl_phdr_info`, as far as the first version had it: unwinders keep nothing
/// of an object that they are told so little of.
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

/// Every unwinder passes on, in one of the first words of its own record, the address
/// that it looks for. Who looks for anything else never hears of us.
fn iterate(shared: &Shared, frame: &Frame) -> Option<u64> {
    let told = looked_for(shared, frame.rsi)?;
    let headers = [
        Header::new(Header::LOAD, told.start, told.end - told.start),
        Header::new(Header::EH_FRAME, told.info, INFO as u64),
    ];
    let info = ObjectInfo {
        address: 0,
        name: c"".as_ptr().cast(),
        headers: headers.as_ptr(),
        count: headers.len() as u64,
    };
    // SAFETY: the function's contract: its first argument is called so, with its second.
    let visit: Visit = unsafe { core::mem::transmute(frame.rdi as usize) };
    // SAFETY: as above; the records live until it returns.
    Some(unsafe { visit(&info, size_of::<ObjectInfo>(), frame.rsi) } as u64)
}

fn looked_for(shared: &Shared, record: u64) -> Option<Told> {
    const WORDS: u64 = 4;
    if record == 0 || !record.is_multiple_of(8) {
        return None;
    }
    let end = (record | (PAGE as u64 - 1)) + 1;
    let words = (end.saturating_sub(record) / 8).min(WORDS);
    (0..words).find_map(|word| {
        // SAFETY: within the page of a record that the caller passes for its function.
        let value = unsafe { (record as *const u64).add(word as usize).read() };
        told(shared, value)
    })
}

/// One walk: the function to show frames to, its argument, and how this unwinder tells
/// a frame's address.
struct Walk {
    show: u64,
    argument: u64,
    address_of: u64,
    stage: Cell<Stage>,
}

/// Which frame a walk of ours comes to next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// One of those that called the unwinder: the last of them is a trampoline's.
    Ours,
    /// The unwinder's own, at its entry.
    Unwinder,
    /// One of those that the program has.
    Programs,
}

impl Stage {
    fn next(self, in_trampoline: bool) -> Stage {
        match self {
            Stage::Ours if !in_trampoline => Stage::Ours,
            Stage::Ours => Stage::Unwinder,
            Stage::Unwinder | Stage::Programs => Stage::Programs,
        }
    }
}

type Show = unsafe extern "C" fn(*mut u8, u64) -> i32;
type AddressOf = unsafe extern "C" fn(*mut u8) -> u64;
type Backtrace = unsafe extern "C" fn(extern "C" fn(*mut u8, &Walk) -> i32, &Walk) -> i32;

/// Has the unwinder walk for us. It begins with our own frames then, which are passed over
/// like all others of ours, and its own.
fn filter_backtrace(unwinder: usize, frame: &Frame) -> Option<u64> {
    let walk = Walk {
        show: frame.rdi,
        argument: frame.rsi,
        address_of: shared::get()?.unwinder(unwinder)?,
        stage: Cell::new(Stage::Ours),
    };
    let original = (frame.back + COPY) as usize;
    // SAFETY: the copy of the function's displaced instructions, which goes on in it.
    let backtrace = unsafe { core::mem::transmute::<usize, Backtrace>(original) };
    // SAFETY: as the program calls it, with a record that lives until it returns.
    Some(unsafe { backtrace(show, &walk) } as u64)
}

/// Shows a frame of the program's, and passes over one of ours.
extern "C" fn show(context: *mut u8, walk: &Walk) -> i32 {
    // SAFETY: `_Unwind_GetIP` of the same unwinder, whose context this is.
    let address =
        unsafe { core::mem::transmute::<usize, AddressOf>(walk.address_of as usize)(context) };
    let stage = walk.stage.get();
    let is_ours = shared::get().is_some_and(|shared| {
        walk.stage.set(stage.next(shared.arenas.hold(address)));
        stage != Stage::Programs || is_ours(shared, address)
    });
    if is_ours {
        return 0;
    }
    // SAFETY: the function that the program passed, with the argument that it passed.
    unsafe { core::mem::transmute::<usize, Show>(walk.show as usize)(context, walk.argument) }
}

/// Whether an address is in code of ours: the agent, a trampoline or a thunk.
pub fn is_ours(shared: &Shared, address: u64) -> bool {
    unsafe extern "C" {
        static __ehdr_start: u8;
        static etext: u8;
    }
    // The linker's names for where the agent begins, and where its code ends.
    let agent = (&raw const __ehdr_start) as u64..(&raw const etext) as u64;
    agent.contains(&address) || shared.thunks.at(address).is_some() || shared.arenas.hold(address)
}

/// Bytes of the unwind information: `.eh_frame_hdr` with one entry, a CIE, an FDE,
/// and the end.
pub const INFO: usize = HDR + CIE + FDE + 4;
const HDR: usize = 20;
const CIE: usize = 20;
const FDE: usize = 100;

/// The unwind information, for code at `code` and itself at `at`, where a thunk's
/// record lies `behind` bytes behind its code.
///
/// The address of a frame, without its low five bits, is its thunk's; the record's first
/// word holds the address to go on at. The frame is no more than what is on the stack at
/// each instruction, which [`PUSHED`] says: nothing where the called function returns to.
/// libgcc tells frames apart by their canonical frame address,
/// and takes the frame with a handler for the first that has the right one. So that of
/// the frame behind the last thunk is made another one than any thunk's, by 8 bytes:
/// the record's last word says by how much, above its low half.
pub fn info(at: u64, code: u64, len: u64, behind: i32) -> [u8; INFO] {
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
    // def_cfa_expression: the caller's stack pointer, less: record's last word, shr 32.
    bytes.put(&[0x0f, 39]).stack_pointer().record(behind + 24);
    bytes.put(&[0x06, 0x08, 32, 0x25, 0x1c]);
    // val_expression of %rsp.
    bytes.put(&[0x16, 7, 23]).stack_pointer();
    // expression of the return address: the record's first word.
    bytes.put(&[0x10, RETURN_ADDRESS, 11]).record(behind);
    bytes.all
}

/// How many words a thunk has on the stack at each byte of its code, in three bits each:
/// what its trampoline has pushed and the return address, less one with each `pop`; then
/// nothing, and in the end the return address again.
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

    /// Pushes the address of a thunk's record, or of a word of it: breg16(0)
    /// const1s(-32) and const4s(behind) plus.
    fn record(&mut self, behind: i32) -> &mut Bytes {
        self.put(&[0x80, 0, 0x09, 0xe0, 0x1a, 0x0d]);
        self.word(behind as u32).put(&[0x22])
    }

    /// Pushes the caller's stack pointer: breg7(0) and const8u(PUSHED) breg16(0) lit31 and
    /// lit3 mul shr lit7 and lit3 shl plus.
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
