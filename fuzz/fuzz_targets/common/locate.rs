//! Parses watches (the user's words for a variable), and computes addresses by plans (the steps to a variable's
//! address).

use tiptoe_symbol::variable::{LoadedFile, Plan, Watch};

pub fn locate(plan: &Plan) {
    let place = LoadedFile {
        bias: 0x1000,
        thread_block: Some(0x2000),
    };
    let mut memory = |address: u64, bytes: &mut [u8]| {
        bytes.fill(address as u8 | 1);
        true
    };
    assert!(plan.locate(&place, &mut memory).is_ok());
    let size = plan.value.size.unwrap_or(8).min(8) as usize;
    assert!(size == 0 || !plan.value.describe(&vec![0xff; size]).is_empty());
}

pub fn watch(input: &[u8]) -> Option<(Watch, &[u8])> {
    let end = input.iter().position(|&byte| byte == 0)?;
    let text = std::str::from_utf8(&input[..end]).ok()?;
    Some((Watch::parse(text).ok()?, &input[end + 1..]))
}
