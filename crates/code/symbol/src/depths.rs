//! How far above the stack pointer a function's own frame begins, at one instruction.

use gimli::{CfaRule, UnwindContext, X86_64};

use crate::elf;
use crate::frames::each_description;

/// For each link-time address in `at`, how many bytes above the stack pointer the caller's
/// frame begins: its return address is the word below. None where `.eh_frame` does not say,
/// or the function goes by another register. `bytes` are the file's, for x86-64.
pub fn depths(bytes: &[u8], at: &[u64]) -> Vec<Option<u16>> {
    let mut found = vec![None; at.len()];
    if at.is_empty() {
        return found; // without a look at what may be a large file
    }
    let section = elf::read(bytes).ok().and_then(|read| read.eh_frame);
    let Some(section) = section.filter(|section| section.x86_64) else {
        return found;
    };
    let mut order: Vec<usize> = (0..at.len()).collect();
    order.sort_by_key(|index| at[*index]);
    let mut context = UnwindContext::new();
    each_description(&section, |fde, eh_frame, bases| {
        let start = order.partition_point(|index| at[*index] < fde.initial_address());
        let end = fde.initial_address().saturating_add(fde.len());
        let inside = order[start..].iter().take_while(|index| at[**index] < end);
        let inside: Vec<usize> = inside.copied().collect();
        if inside.is_empty() {
            return;
        }
        let Ok(mut rows) = fde.rows(eh_frame, bases, &mut context) else {
            return;
        };
        while let Ok(Some(row)) = rows.next_row() {
            let covered = inside.iter().filter(|index| row.contains(at[**index]));
            for index in covered {
                found[*index] = depth(row.cfa());
            }
        }
    });
    found
}

fn depth(rule: &CfaRule<usize>) -> Option<u16> {
    match rule {
        CfaRule::RegisterAndOffset { register, offset } if *register == X86_64::RSP => {
            u16::try_from(*offset).ok().filter(|depth| *depth >= 8)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_their_entries_functions_have_a_return_address_and_nothing_else() {
        let bytes = std::fs::read("/proc/self/exe").expect("it can be read");
        let frames = elf::read(&bytes).expect("an ELF file").eh_frame;
        let frames = crate::frames::frames(&frames.expect("it can be unwound"));
        let entries: Vec<u64> = frames
            .iter()
            .filter(|frame| !frame.inside && !frame.outermost)
            .map(|frame| frame.address)
            .collect();
        assert!(entries.len() > 100);
        let found = depths(&bytes, &entries);
        assert!(found.iter().all(|depth| *depth == Some(8)));
        assert_eq!(depths(&bytes, &[1]), [None]);
        assert_eq!(depths(&bytes[..100], &entries[..1]), [None]);
    }
}
