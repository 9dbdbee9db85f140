//! All lookups of a trace in a file must end soon, without a panic. The input is a watch (the user's words for a
//! variable), up to a zero, and the file, which is also each debug file.
#![no_main]

#[path = "common/locate.rs"]
mod locate;
#[path = "common/mirror.rs"]
mod mirror;

use libfuzzer_sys::fuzz_target;
use locate::locate;
use mirror::Mirror;
use tiptoe_symbol::{Content, Image, section, unwind_table};

const INSTRUCTIONS: usize = 16;

fuzz_target!(|input: &[u8]| {
    let Some((watch, file)) = locate::watch(input) else {
        return;
    };
    let debug = Mirror(file);
    let content = &Content::from(file.to_vec());
    let Ok(image) = Image::parse(content, &debug) else {
        return;
    };
    let table = unwind_table(content);
    assert!(table.rows().len() <= 2 * file.len() + 2);
    let _ = section(content, "tiptoe_ports");
    for function in image.functions() {
        let _ = (
            table.rule(function.address),
            image.variable_at(function.address),
        );
    }
    image.origins(content, &debug, |origins| {
        for function in image.functions().iter().take(INSTRUCTIONS) {
            // Debug information that takes too long to read is an error.
            if let Ok(origin) = origins.of(function.address) {
                assert!(origin.inlined.len() <= 32);
            }
        }
    });
    let Ok(plan) = image.variables(content, &debug, |variables| variables.plan(&watch)) else {
        return;
    };
    locate(&plan);
});
