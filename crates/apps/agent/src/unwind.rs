//! Describes generated code to unwinders, so that exceptions, cancellation and `backtrace()` work as without the agent.
//!
//! Generated code is *trampolines*, which probes jump to, and *thunks*, to which *followed* calls return (their returns
//! count, too). A return address may be in a thunk, and a signal may interrupt a thunk, a trampoline, or the agent. An
//! unwinder asks libc for the object that contains such an address, by `_dl_find_object` or, in older versions,
//! `dl_iterate_phdr`. Both are intercepted, and return an object of ours for generated code.
//!
//! A thunk's unwind information computes the caller's stack pointer, and finds the return address in the thunk's
//! record. A trampoline's information describes the probed function's frame (`tiptoe-patch`, `unwind`). Some followed
//! calls return into the trampoline itself, whose information then gives their true return addresses. So any unwinder
//! works, even one linked into the program.
//!
//! `_Unwind_Backtrace` passes every frame to a function that its caller gives. We replace that function by one that
//! skips our frames. [`crate::forced`] does the same for `_Unwind_ForcedUnwind`.
//!
//! `dlsym` and `dlopen` inspect their return address, which is in a thunk if a followed function tail-calls them. So
//! the agent first counts that function as returned, and restores the true return address.
//!
//! Once calls were followed, these interceptions stay, because calls may return through thunks even after a detach.

use core::cell::Cell;

use tiptoe_uprobe::thunks::STRIDE;
use tiptoe_wire::calls::intercepted;

use crate::arenas::UnwindRange;
use crate::calls;
use crate::forced;
use crate::gate;
use crate::library_changes;
use crate::memory::PAGE;
use crate::program_call::Frame;
use crate::shared::{self, Shared};
use crate::unwind_info::{AddressOf, INFO};

/// The distance from an interception's return address to the copy of the displaced (overwritten) instructions
/// (`tiptoe-patch`, `build`).
const COPY: u64 = 14;

/// Handles an intercepted function. Returns what it must return without running; `None` if it must run.
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
            library_changes::changed();
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
    // SAFETY: by its contract, the function's second argument is room for its answer.
    unsafe { (frame.rsi as *mut FoundObject).write(found) };
    Some(0)
}

/// `struct dl_phdr_info` in its first version, because unwinders do not cache objects that have only these fields.
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

/// Handles `dl_iterate_phdr`. Only unwinders pass a record whose first words contain an address in generated code, so
/// other callers never see our object.
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
    // SAFETY: the program passes this function to be called with the second argument.
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

/// A walk of `_Unwind_Backtrace`: the program's function, its argument, the unwinder's `_Unwind_GetIP`.
struct Walk {
    show: u64,
    argument: u64,
    address_of: u64,
    stage: Cell<WalkStage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkStage {
    /// A frame of ours. The walk begins there, because the agent calls the unwinder. The last such frame is the
    /// trampoline's.
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
type Backtrace = unsafe extern "C" fn(extern "C" fn(*mut u8, &Walk) -> i32, &Walk) -> i32;

fn filter_backtrace(unwinder: usize, frame: &Frame) -> Option<u64> {
    let walk = Walk {
        show: frame.rdi,
        argument: frame.rsi,
        address_of: shared::get()?.unwinder(unwinder)?,
        stage: Cell::new(WalkStage::Ours),
    };
    let original = (frame.back + COPY) as usize;
    // SAFETY: this copy of the function's displaced instructions continues in the function.
    let backtrace = unsafe { core::mem::transmute::<usize, Backtrace>(original) };
    // SAFETY: the program makes the same call. The record outlives it.
    Some(unsafe { backtrace(show, &walk) } as u64)
}

extern "C" fn show(context: *mut u8, walk: &Walk) -> i32 {
    // SAFETY: this is `_Unwind_GetIP` of the unwinder that made the context.
    let address =
        unsafe { core::mem::transmute::<usize, AddressOf>(walk.address_of as usize)(context) };
    let stage = walk.stage.get();
    let is_ours = shared::get().is_some_and(|shared| {
        walk.stage.set(stage.next(shared.arenas.hold(address)));
        stage != WalkStage::Programs || shared.is_ours(address)
    });
    if is_ours {
        return 0;
    }
    // SAFETY: this is the program's function, with the argument that the program passed.
    unsafe { core::mem::transmute::<usize, Show>(walk.show as usize)(context, walk.argument) }
}
