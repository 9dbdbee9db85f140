use std::rc::Rc;

use gimli::{Dwarf, SectionId};

use crate::budget::ReadBudget;
use crate::content::Content;
use crate::elf;
use crate::reader::{Section, SectionPart};

pub(crate) fn dwarf<'d>(
    bytes: &'d Content,
    first: u16,
    budget: Option<&Rc<ReadBudget>>,
) -> Dwarf<SectionPart<'d>> {
    let file = elf::parse(bytes);
    let mut numbers = first..;
    let mut part = |id: SectionId| {
        let section = file
            .as_ref()
            .map(|file| Section::of(file, bytes, id.name()));
        let mut section = section.unwrap_or_default();
        if let Some(budget) = budget {
            section = section.paid_by(budget, price(id));
        }
        SectionPart::all(section, numbers.next().unwrap_or(u16::MAX))
    };
    let Ok(dwarf) = Dwarf::load(|id| Ok::<_, std::convert::Infallible>(part(id)));
    dwarf
}

/// Returns what one read of a section costs the budget, by the memory that addr2line keeps for the read.
fn price(id: SectionId) -> usize {
    match id {
        SectionId::DebugRanges | SectionId::DebugRngLists => 8,
        SectionId::DebugLine => 4,
        _ => 1,
    }
}
