//! Errors must be at an offset inside the text. A printed filter must parse to the same filter. A filter must join the
//! results of its comparisons correctly. The first 48 bytes are the argument registers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiptoe_event::{Filter, Join};

fuzz_target!(|input: &[u8]| {
    let Some((registers, text)) = input.split_first_chunk::<48>() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let filter: Filter = match text.parse() {
        Ok(filter) => filter,
        Err(error) => {
            let error: tiptoe_event::FilterError = error;
            assert!(error.at <= text.len() && !error.to_string().is_empty());
            return;
        }
    };
    let shown = filter.to_string();
    assert_eq!(shown.parse(), Ok(filter), "{text:?} became {shown:?}");
    let args = std::array::from_fn(|arg| {
        let bytes: [u8; 8] = std::array::from_fn(|byte| registers[arg * 8 + byte]);
        u64::from_le_bytes(bytes)
    });
    let mut each = filter
        .comparisons()
        .iter()
        .map(|c| c.holds(args[usize::from(c.arg)]));
    let passes = match filter.join() {
        Join::All => each.all(|held| held),
        Join::Any => each.any(|held| held),
    };
    assert_eq!(filter.passes(&args), passes);
});
