//! Reading a mapped file must end soon and must not panic. Then a stack is unwound by the file's tables. The first
//! 26 bytes are registers (address in the file, stack pointer, %rbp), the file's role (such as libc), and the page
//! at which the mapping begins.
#![no_main]

#[path = "../../crates/host/attach/src/inject/mapped_files.rs"]
mod mapped_files;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder as _};
use libfuzzer_sys::fuzz_target;
use mapped_files::{MappedFile, Role, needed, segments};

const START: u64 = 0x7000_0000_0000;
const MAX_FRAMES: usize = 512;

fuzz_target!(|input: &[u8]| {
    let Some((head, file)) = input.split_at_checked(26) else {
        return;
    };
    let word = |index: usize| {
        let word = head[8 * index..][..8].try_into();
        u64::from_le_bytes(word.unwrap_or_default())
    };
    let (pc, sp, bp) = (word(0), word(1), word(2));
    let role = [Role::Loader, Role::Libc, Role::Program, Role::Library][usize::from(head[24] & 3)];
    let offset = u64::from(head[25]) << 12;
    let _ = (
        segments(file).map(|all| all.len()),
        needed(file).map(|all| all.len()),
    );
    let span = START..START + (1 << 30);
    let Some(image) = MappedFile::read(file, START, offset, span, role) else {
        return;
    };
    let _ = (image.function("dlopen"), image.state());
    let mut unwinder = UnwinderX86_64::new();
    unwinder.add_module(image.module());
    let mut cache = CacheX86_64::new();
    let mut at = UnwindRegsX86_64::new(START.wrapping_add(pc & 0x3fff_ffff), sp, bp);
    let mut address = FrameAddress::from_instruction_pointer(at.ip());
    let mut read =
        |address: u64| Ok::<u64, ()>(START + (address.wrapping_mul(0x9e37_79b9) & 0xffff));
    for _ in 0..MAX_FRAMES {
        let _ = image.is_unsafe(address.address_for_lookup());
        match unwinder.unwind_frame(address, &mut at, &mut cache, &mut read) {
            Ok(Some(next)) => match FrameAddress::from_return_address(next) {
                Some(next) => address = next,
                None => return,
            },
            Ok(None) | Err(_) => return,
        }
    }
});
