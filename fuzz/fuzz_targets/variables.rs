//! Planning (finding the steps to a variable's address) must end soon and must not panic, and a plan must give an
//! address if all memory is readable. The input is a watch (the user's words for a variable), a zero byte, and
//! sections, each preceded by its length in two bytes.
#![no_main]

#[path = "../../crates/code/symbol/tests/common/elf.rs"]
mod elf;
#[path = "common/locate.rs"]
mod locate;

use libfuzzer_sys::fuzz_target;
use locate::locate;
use tiptoe_symbol::{Image, NoDebugFiles};

const SECTIONS: [&str; 7] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_str",
    ".debug_types",
    ".debug_line_str",
    ".debug_str_offsets",
    ".debug_addr",
];

fn take<'i>(input: &mut &'i [u8]) -> &'i [u8] {
    let Some((length, rest)) = input.split_first_chunk::<2>() else {
        return &[];
    };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (taken, rest) = rest.split_at(length);
    *input = rest;
    taken
}

fuzz_target!(|input: &[u8]| {
    let Some((watch, mut rest)) = locate::watch(input) else {
        return;
    };
    let sections = SECTIONS.map(|name| (name, take(&mut rest)));
    let file = elf::elf(&sections).into();
    let image = Image::parse(&file, &NoDebugFiles).expect("it is made here");
    let plan = image.variables(&file, &NoDebugFiles, |variables| variables.plan(&watch));
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    locate(&plan);
});
