//! A watch (the user's words for a variable) must be refused at an offset inside its text, or print text that reads
//! back as the same watch.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiptoe_event::LENGTHS;
use tiptoe_symbol::variable::Watch;

fuzz_target!(|text: &str| {
    let watch = match Watch::parse(text) {
        Ok(watch) => watch,
        Err(error) => {
            assert!(error.at <= text.len() && !error.to_string().is_empty());
            return;
        }
    };
    assert!(watch.length.is_none_or(|length| LENGTHS.contains(&length)));
    let shown = watch.to_string();
    assert_eq!(Watch::parse(&shown), Ok(watch), "{text:?} became {shown:?}");
});
