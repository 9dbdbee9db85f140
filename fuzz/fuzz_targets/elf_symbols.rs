//! Parsing and lookups must end soon, without a panic, and must return no place outside the file. The first byte
//! splits the input into a spec (names of functions) and the file, which is also the debug file.
#![no_main]

#[path = "common/mirror.rs"]
mod mirror;

use libfuzzer_sys::fuzz_target;
use mirror::Mirror;
use tiptoe_symbol::Image;

fuzz_target!(|input: &[u8]| {
    let Some((&length, rest)) = input.split_first() else {
        return;
    };
    let (spec, file) = rest.split_at(usize::from(length).min(rest.len()));
    let Ok(image) = Image::parse(&file.to_vec().into(), &Mirror(file)) else {
        return;
    };
    if let Ok(spec) = std::str::from_utf8(spec) {
        let _ = image.find(spec).map(|found| found.len());
    }
    for function in image.functions() {
        assert!((function.offset_in_file as usize) < file.len());
        assert_eq!(
            image.layout().offset_of(function.address),
            Some(function.offset_in_file)
        );
        let _ = function.display_name();
        let _ = image.function_containing(function.end());
    }
});
