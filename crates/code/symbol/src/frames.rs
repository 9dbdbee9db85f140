//! Finds nameless functions: code that `.eh_frame` describes.
//!
//! Each description (FDE) covers a function, a cold part, a procedure linkage table, or a signal trampoline. If the
//! code begins at a function's entry, the first rule is a CFA one word above the stack pointer.

use std::ops::Range;

use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, EhFrame, FrameDescriptionEntry, LittleEndian,
    UnwindContext, X86, X86_64,
};
use tiptoe_stack::compile::{MAX_CIE, Reader, Section, each_description};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Whether the code is a signal trampoline, whose description may start a byte early.
    pub(crate) is_signal_trampoline: bool,
    pub(crate) is_inside_function: bool,
    pub(crate) is_unwinder: bool,
    pub(crate) is_outermost: bool,
}

/// A shorter gap between descriptions counts as described, because such a gap is padding, or a routine in assembly.
const GAP: u64 = 1 << 16;

/// Returns the disjoint, ascending ranges of described code, or all code if most is undescribed.
pub(crate) fn described(frames: &[Frame], executable: &[Range<u64>]) -> Vec<Range<u64>> {
    let range = |frame: &Frame| frame.address..frame.address.saturating_add(frame.size);
    let mut pieces: Vec<Range<u64>> = frames.iter().map(range).collect();
    pieces.sort_by_key(|piece| piece.start);
    pieces.dedup_by(|next, piece| {
        let together = next.start.saturating_sub(piece.end) < GAP;
        if together {
            piece.end = piece.end.max(next.end);
        }
        together
    });
    let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
    let bytes = |ranges: &[Range<u64>]| ranges.iter().map(length).fold(0, u64::saturating_add);
    match bytes(&pieces) < bytes(executable) / 2 {
        true => executable.to_vec(),
        false => pieces,
    }
}

pub(crate) fn frames(section: &Section<'_>) -> Vec<Frame> {
    let mut context = UnwindContext::new();
    let mut found = Vec::new();
    each_description(section, |fde, eh_frame, bases| {
        let mut first_rule = || {
            let mut rows = fde.rows(eh_frame, bases, &mut context).ok()?;
            let row = rows.next_row().ok()??;
            Some(inside(section, row.cfa()))
        };
        let is_short = fde.cie().entry_len() <= MAX_CIE;
        let inside = is_short && first_rule().unwrap_or(false);
        let [unwinder, outermost] = match section.x86_64 {
            true => rules(fde, eh_frame, bases),
            false => [false; 2],
        };
        found.push(Frame {
            address: fde.initial_address(),
            size: fde.len(),
            is_signal_trampoline: fde.is_signal_trampoline(),
            is_inside_function: inside,
            is_unwinder: unwinder,
            is_outermost: outermost,
        });
    });
    found
}

/// Returns [`Frame::is_unwinder`] and [`Frame::is_outermost`]. Only an unwinder's entry that continues in a handler
/// (`__builtin_eh_return`) saves %rax and %rdx.
fn rules(
    fde: &FrameDescriptionEntry<Reader<'_>>,
    eh_frame: &EhFrame<Reader<'_>>,
    bases: &BaseAddresses,
) -> [bool; 2] {
    let mut saved = [false; 2];
    let mut outermost = false;
    // Assemblers may move instructions into the CIE, which several FDEs share.
    let common = fde.cie().instructions(eh_frame, bases);
    for mut instructions in [common, fde.instructions(eh_frame, bases)] {
        while let Ok(Some(instruction)) = instructions.next() {
            match instruction {
                CallFrameInstruction::Offset { register, .. } => {
                    saved[0] |= register == X86_64::RAX;
                    saved[1] |= register == X86_64::RDX;
                }
                CallFrameInstruction::Undefined { register } => {
                    outermost |= register == X86_64::RA;
                }
                _ => {}
            }
        }
    }
    [saved == [true; 2], outermost]
}

fn inside(section: &Section<'_>, cfa: &CfaRule<usize>) -> bool {
    let (register, offset) = match section.x86_64 {
        true => (X86_64::RSP, 8),
        false => (X86::ESP, 4),
    };
    *cfa != CfaRule::RegisterAndOffset { register, offset }
}

pub(crate) fn indexed_address(index: &[u8], address: u64, word: u8) -> Option<u64> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let index = gimli::EhFrameHdr::new(index, LittleEndian)
        .parse(&bases, word)
        .ok()?;
    index.eh_frame_ptr().direct().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x1000;
    /// def_cfa: %rsp+8.
    const CALLED: [u8; 3] = [0x0c, 7, 8];
    /// undefined: %rip.
    const NOBODY: [u8; 2] = [0x07, 16];
    /// advance_loc: 4.
    const LATER: u8 = 0x44;

    #[test]
    fn long_gaps_without_descriptions_are_excluded() {
        let frame = |address, size| Frame {
            address,
            size,
            is_signal_trampoline: false,
            is_inside_function: false,
            is_unwinder: false,
            is_outermost: false,
        };
        let frames = [
            frame(90_000, 10),
            frame(100, 50),
            frame(160, 900),
            frame(200, 20),
        ];
        let pieces = [100..1_060, 90_000..90_010];
        assert_eq!(described(&frames, &[100..1_000, 90_000..90_900]), pieces);
        let code = [100..1_100, 90_000..91_000];
        assert_eq!(
            described(&frames, &code),
            code,
            "most of it is not described"
        );
    }

    fn eh_frame(common: &[u8], own: &[u8]) -> Vec<u8> {
        let entry = |body: Vec<u8>| {
            let padded = body.len().next_multiple_of(8) + 4;
            let length = (padded as u32).to_le_bytes();
            let mut entry = [length.to_vec(), body].concat();
            entry.resize(padded + 4, 0);
            entry
        };
        // Id, version, "zR", factors 1 and -8, return address's register, pcrel sdata4.
        let head = [0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b];
        let cie = entry([&head, common].concat());
        let to_cie = cie.len() as u32 + 4;
        let begin = 0x5000 - (AT as u32 + cie.len() as u32 + 8);
        let words = [to_cie, begin, 16].map(u32::to_le_bytes).concat();
        let fde = entry([&words, &[0][..], own].concat());
        [cie, fde, vec![0; 4]].concat()
    }

    #[track_caller]
    fn check(common: &[u8], own: &[u8], outermost: bool) {
        let bytes = eh_frame(common, own);
        let section = Section {
            bytes: &bytes,
            address: AT,
            word: 8,
            x86_64: true,
        };
        let expected = Frame {
            address: 0x5000,
            size: 16,
            is_signal_trampoline: false,
            is_inside_function: false,
            is_unwinder: false,
            is_outermost: outermost,
        };
        assert_eq!(frames(&section), [expected]);
    }

    #[test]
    fn an_outermost_function_is_marked_in_its_cie_or_fde() {
        check(&CALLED, &[], false);
        check(&[&CALLED[..], &NOBODY].concat(), &[], true);
        check(&CALLED, &NOBODY, true);
        check(&CALLED, &[&[LATER][..], &NOBODY].concat(), true);
    }
}
