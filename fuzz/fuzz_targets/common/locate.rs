//! Follows the plans of variables.

use tiptoe_symbol::variable::{LoadedFile, Plan};

/// Follows a plan through memory that can be read everywhere, and describes the value.
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
