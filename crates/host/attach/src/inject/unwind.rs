//! Decides whether a stopped thread's stack is outside of all code that holds locks which the loader needs.
//!
//! The stack is unwound by the mapped files' tables. Generated or hand-written code has no tables. After a frame of
//! such code, the rest of the stack is searched for words that may be return addresses into code that holds such
//! locks. The search may refuse a thread wrongly, which costs one more attempt, but must never accept a thread
//! wrongly.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder as _};
use libc::user_regs_struct;
use tiptoe_sys::host::procfs::Mapping;

use super::mapped_files::{MappedFile, Role};
use super::process::Process;
use crate::error::inject_error::{InjectError, UnfitThread};
use crate::target_files::content;

const MAX_FRAMES: usize = 512;
const MAX_SEARCH: u64 = 256 << 10;
/// The code to which a signal handler returns: `mov $15, %rax; syscall`.
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackState {
    Free,
    Unfit(UnfitThread),
    /// The stack leads into an unread file.
    Unread,
}

/// The mapped files of a process, each read when a stack first leads into it.
pub(super) struct Stacks<'a> {
    process: &'a Process,
    mappings: Vec<Mapping>,
    loader: u64,
    /// The files by the start of their text mapping; `None` if unreadable.
    images: HashMap<u64, Option<MappedFile>>,
    /// The unread file into which the last judged stack led.
    unread: Option<Mapping>,
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(process: &'a Process, mappings: Vec<Mapping>, loader: u64) -> Self {
        Self {
            process,
            mappings,
            loader,
            images: HashMap::new(),
            unread: None,
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
        }
    }

    /// Forgets all files if one of them is no longer mapped.
    pub(super) fn refresh(&mut self) -> Result<(), InjectError> {
        let mappings = self.process.mappings()?;
        let known = |start| {
            mappings
                .iter()
                .any(|m: &Mapping| m.is_text() && m.start == start)
        };
        if self.images.keys().any(|start| !known(*start)) {
            *self = Self::new(self.process, mappings, self.loader);
        } else {
            self.mappings = mappings;
        }
        Ok(())
    }

    pub(super) fn libc(&mut self) -> Option<&MappedFile> {
        self.image(is_libc)
    }

    /// Returns the loader's state if it contains a held lock, for which `dlopen` would wait. No thread should be
    /// stopped during the first call, which reads a file.
    pub(super) fn locked_loader(&mut self) -> Option<Vec<u8>> {
        let loader = self.loader;
        let first = self.mappings.iter().find(|m| m.start == loader).cloned();
        let first = first?;
        let state = self.image(|text| text.same_file(&first));
        let state = state.and_then(MappedFile::state)?;
        let len = (state.end - state.start) as usize;
        let bytes = self.process.read_some(state.start, len);
        has_held_lock(&bytes).then_some(bytes)
    }

    fn image(&mut self, is_wanted: impl Fn(&Mapping) -> bool) -> Option<&MappedFile> {
        let wanted = |text: &&Mapping| text.is_text() && is_wanted(text);
        let text = self.mappings.iter().find(wanted)?.clone();
        self.read(&text);
        self.images.get(&text.start)?.as_ref()
    }

    /// Reads the file that [`Stacks::judge`] lacked. No thread should be stopped while this runs.
    pub(super) fn read_on(&mut self) {
        if let Some(text) = self.unread.take() {
            self.read(&text);
        }
    }

    fn read(&mut self, text: &Mapping) {
        if self.images.contains_key(&text.start) {
            return;
        }
        let image = self.image_of(text);
        if let Some(image) = &image {
            self.unwinder.add_module(image.module());
        }
        self.images.insert(text.start, image);
    }

    fn image_of(&self, text: &Mapping) -> Option<MappedFile> {
        let content = content(self.process.open_file(text).ok()?).ok()?;
        let ours = || self.mappings.iter().filter(|m| m.same_file(text));
        let span = ours().map(|m| m.start).min()?..ours().map(|m| m.end).max()?;
        MappedFile::read(&content, text.start, text.offset, span, self.role(text))
    }

    pub(super) fn judge(&mut self, regs: &user_regs_struct) -> StackState {
        let mut at = UnwindRegsX86_64::new(regs.rip, regs.rsp, regs.rbp);
        let mut address = FrameAddress::from_instruction_pointer(regs.rip);
        let mut is_in_handler = false;
        for _ in 0..MAX_FRAMES {
            if self.is_sigreturn(address.address()) {
                let Some(below) = self.interrupted(at.sp()) else {
                    return StackState::Unfit(UnfitThread::UnknownFrames);
                };
                (address, at) = (FrameAddress::from_instruction_pointer(below.ip()), below);
                is_in_handler = true;
            }
            let Some(known) = self.visit(address.address_for_lookup()) else {
                return self.search(at.sp(), is_in_handler);
            };
            if known != StackState::Free {
                return known;
            }
            let process = self.process;
            let mut read = |address| process.read_u64(address).map_err(|_| ());
            match self
                .unwinder
                .unwind_frame(address, &mut at, &mut self.cache, &mut read)
            {
                Ok(None) => return StackState::Free,
                Ok(Some(next)) => match FrameAddress::from_return_address(next) {
                    Some(next) => address = next,
                    None => return StackState::Free,
                },
                Err(_) => return self.search(at.sp(), is_in_handler),
            }
        }
        self.search(at.sp(), is_in_handler)
    }

    /// Judges one address; `None` if its file has no unwind tables.
    fn visit(&mut self, address: u64) -> Option<StackState> {
        let text = self.text_at(address)?;
        let Some(image) = self.images.get(&text.start) else {
            self.unread = Some(text.clone());
            return Some(StackState::Unread);
        };
        let image = image.as_ref()?;
        if image.is_unsafe(address) {
            return Some(StackState::Unfit(UnfitThread::Inside));
        }
        image.eh_frame.as_ref().map(|_| StackState::Free)
    }

    fn text_at(&self, address: u64) -> Option<&Mapping> {
        let after = self
            .mappings
            .partition_point(|mapping| mapping.end <= address);
        self.mappings
            .get(after)
            .filter(|mapping| mapping.start <= address && mapping.is_text())
    }

    fn role(&self, text: &Mapping) -> Role {
        let first = self.mappings.iter().find(|mapping| mapping.same_file(text));
        match first {
            Some(first) if first.start == self.loader => Role::Loader,
            _ if is_libc(text) => Role::Libc,
            _ if is_library(text) => Role::Library,
            _ => Role::Program,
        }
    }

    fn search(&mut self, sp: u64, is_in_handler: bool) -> StackState {
        let unknown = StackState::Unfit(UnfitThread::UnknownFrames);
        if is_in_handler {
            return unknown;
        }
        let Some(stack) = self.mappings.iter().find(|m| m.contains(sp)) else {
            return unknown;
        };
        let mut bytes = vec![0; (stack.end - sp).min(MAX_SEARCH) as usize & !7];
        if self.process.read(sp, &mut bytes).is_err() {
            return unknown;
        }
        for word in bytes.chunks_exact(8) {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            if word > 8 && self.follows_call(word) {
                match self.visit(word - 1) {
                    Some(StackState::Free) | None => {}
                    Some(place) => return place,
                }
            }
        }
        StackState::Free
    }

    /// Returns whether the instruction before `address` may be a call: `e8`, or an `ff /2` of any length.
    fn follows_call(&self, address: u64) -> bool {
        if self.text_at(address - 1).is_none() {
            return false;
        }
        let mut code = [0; 7];
        if self.process.read(address - 7, &mut code).is_err() {
            return false;
        }
        code[2] == 0xe8 || (0..6).any(|at| code[at] == 0xff && code[at + 1] & 0x38 == 0x10)
    }

    fn is_sigreturn(&self, address: u64) -> bool {
        let mut code = [0; SIGRETURN.len()];
        self.process.read(address, &mut code).is_ok() && code == SIGRETURN
    }

    fn interrupted(&self, sp: u64) -> Option<UnwindRegsX86_64> {
        const RBP: u64 = 40 + 10 * 8;
        const RSP: u64 = 40 + 15 * 8;
        const RIP: u64 = 40 + 16 * 8;
        let read = |offset| self.process.read_u64(sp.wrapping_add(offset)).ok();
        Some(UnwindRegsX86_64::new(read(RIP)?, read(RSP)?, read(RBP)?))
    }
}

/// Returns whether these bytes contain a held recursive lock. The lock's offset differs between versions of glibc.
/// Its first five words are the lock word, how often the owner took the lock, the owner, the number of users (1), and
/// the kind (1, recursive).
fn has_held_lock(bytes: &[u8]) -> bool {
    const MOST_TAKEN: u32 = 1 << 10;
    const PID_MAX_LIMIT: u32 = 1 << 22;
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(word.try_into().ok()?))
    };
    (0..bytes.len()).step_by(8).any(|at| {
        let words: Option<Vec<u32>> = (0..5).map(|index| word(at + index * 4)).collect();
        matches!(words.as_deref(), Some([1 | 2, taken, owner, 1, 1])
            if (1..MOST_TAKEN).contains(taken) && (1..PID_MAX_LIMIT).contains(owner))
    })
}

pub(super) fn is_libc(mapping: &Mapping) -> bool {
    // An unlinked file also counts, because an upgrade replaces the libc of running programs.
    name(mapping).is_some_and(|name| name == "libc.so.6" || name.starts_with("libc-2."))
}

/// Returns whether a mapped file has this name; `false` if it was unlinked, because another file may have its
/// name now.
pub(super) fn is_named(mapping: &Mapping, wanted: &str) -> bool {
    !mapping.deleted && name(mapping).is_some_and(|name| name == wanted)
}

fn name(mapping: &Mapping) -> Option<Cow<'_, str>> {
    let name = mapping.path.as_deref().and_then(Path::file_name);
    name.map(OsStr::to_string_lossy)
}

fn is_library(mapping: &Mapping) -> bool {
    let path = mapping.path.as_deref();
    path.is_some_and(|path| path.to_string_lossy().contains(".so"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_known_by_its_words() {
        let check = |words: [u32; 5], is_held| {
            let state = [7, 0, 16, 0].iter().chain(&words).chain(&[0; 5]);
            let bytes: Vec<u8> = state.flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(has_held_lock(&bytes), is_held, "{words:?}");
        };
        check([1, 1, 4242, 1, 1], true);
        // Other threads wait for the lock, and its owner took it twice.
        check([2, 2, 4242, 1, 1], true);
        check([0, 0, 0, 0, 1], false);
        check([1, 1, 4242, 1, 0], false);
        check([1, 1, 0, 1, 1], false);
        check([2, 0, 4242, 1, 1], false);
        assert!(!has_held_lock(&[1; 7]));
    }
}
