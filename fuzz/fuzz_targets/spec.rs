//! An event must be refused at an offset inside its text, or print text that reads back as the same event.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tiptoe_event::{Event, Spec, is_glob};

fuzz_target!(|text: &str| {
    let _ = Event::parse(text).map_err(|error| error.to_string());
    let spec = match Spec::parse(text) {
        Ok(spec) => spec,
        Err(error) => {
            assert!(error.at <= text.len() && !error.to_string().is_empty());
            return;
        }
    };
    let shown = spec.to_string();
    assert_eq!(Spec::parse(&shown), Ok(spec), "{text:?} became {shown:?}");
    assert_eq!(
        Spec::parse(&shown)
            .map(|again| again.to_string())
            .as_deref(),
        Ok(&*shown)
    );
    let _ = spec.binary.map(is_glob);
});
