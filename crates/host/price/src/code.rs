//! Private memory for generated code. A page is writable or executable, never both.

use std::io;
use std::ops::Range;
use std::ptr;

const PAGE: u64 = 4096;
const WRITABLE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const EXECUTABLE: i32 = libc::PROT_READ | libc::PROT_EXEC;
/// The bytes of addresses. A jump that replaces several instructions must have the trap byte 0xcc where one of them
/// began. If this is the jump's last byte, the jump's target is about 800 MiB below the jump.
const RESERVED: usize = 1 << 30;
const FUNCTIONS: u64 = 1 << 20;

const SHIFT: u64 = 37 * PAGE;

pub(super) struct Draft {
    base: *mut u8,
    layout: u64,
    opened: Vec<Range<u64>>,
}

impl Draft {
    /// Reserves addresses, without memory. Each layout has its functions at other addresses, because a function's
    /// speed depends on its address (branch predictors).
    pub(super) fn reserve(layout: u8) -> io::Result<Draft> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, which replaces none.
        let base = unsafe { libc::mmap(ptr::null_mut(), RESERVED, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Draft {
            base: base.cast(),
            layout: layout.into(),
            opened: Vec::new(),
        })
    }

    fn start(&self) -> u64 {
        self.base as u64
    }

    pub(super) fn functions(&self) -> Range<u64> {
        let end = self.start() + RESERVED as u64 - self.layout * SHIFT;
        end - FUNCTIONS..end
    }

    pub(super) fn trampolines(&self) -> Range<u64> {
        self.start()..self.functions().start
    }

    /// Makes a page-aligned part writable, until [`Draft::into_executable`].
    pub(super) fn open(&mut self, part: Range<u64>) -> io::Result<()> {
        self.protect(&part, WRITABLE)?;
        self.opened.push(part);
        Ok(())
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        let open = self.opened.iter().any(|p| p.start <= at && end <= p.end);
        assert!(open, "{at:#x} is not open");
        let to = self.base.wrapping_add((at - self.start()) as usize);
        // SAFETY: the destination is writable in our mapping, and no reference to it exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    pub(super) fn into_executable(mut self) -> io::Result<Code> {
        for part in std::mem::take(&mut self.opened) {
            self.protect(&part, EXECUTABLE)?;
        }
        Ok(Code { draft: self })
    }

    fn protect(&self, part: &Range<u64>, protection: i32) -> io::Result<()> {
        let inside = self.start() <= part.start && part.end <= self.start() + RESERVED as u64;
        assert!(
            inside && part.start.is_multiple_of(PAGE),
            "{part:x?} is not ours"
        );
        let at = self.base.wrapping_add((part.start - self.start()) as usize);
        let len = (part.end - part.start) as usize;
        // SAFETY: the part is in our own mapping, which contains no Rust value.
        match unsafe { libc::mprotect(at.cast(), len, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // SAFETY: the mapping is our own. No generated code runs now, because `Program::run` borrows the program,
        // which owns this value.
        unsafe { libc::munmap(self.base.cast(), RESERVED) };
    }
}

pub(super) struct Code {
    draft: Draft,
}

impl Code {
    /// `&mut` proves that no thread runs the code at that time.
    pub(super) fn rewrite(
        &mut self,
        part: &Range<u64>,
        write: impl FnOnce(&mut Draft),
    ) -> io::Result<()> {
        self.draft.open(part.clone())?;
        write(&mut self.draft);
        self.draft.opened.clear();
        self.draft.protect(part, EXECUTABLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_code_runs_and_can_be_rewritten() {
        let mut draft = Draft::reserve(0).expect("addresses");
        let at = draft.functions().start;
        draft.open(at..at + PAGE).expect("memory");
        draft.write(at, &[0xb8, 42, 0, 0, 0, 0xc3]);
        let mut code = draft.into_executable().expect("executable memory");
        // SAFETY: the code is `mov $42,%eax; ret`, and lives until after the calls.
        let run: extern "C" fn() -> u32 = unsafe { std::mem::transmute(at) };
        assert_eq!(run(), 42);
        code.rewrite(&(at..at + PAGE), |draft| draft.write(at + 1, &[43]))
            .expect("memory");
        assert_eq!(run(), 43);
    }

    #[test]
    #[should_panic(expected = "is not open")]
    fn only_opened_parts_are_written() {
        let mut draft = Draft::reserve(0).expect("addresses");
        let at = draft.functions().start;
        draft.write(at, &[0xc3]);
    }
}
