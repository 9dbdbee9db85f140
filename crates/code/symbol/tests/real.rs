//! Reads the machine's programs and libraries.

mod common;

use std::path::Path;

use common::{image, tool};
use tiptoe_symbol::{Error, Image, Kind, Source};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

fn report(path: &str, image: &Image) {
    let count = |pick: &dyn Fn(&tiptoe_symbol::Function) -> bool| {
        image.functions().iter().filter(|f| pick(f)).count()
    };
    println!(
        "{path}: {} functions, {} nameless, {} cold, {} plt, {} signal, {} ifunc, stripped {}",
        image.functions().len(),
        count(&|f| f.names.is_empty()),
        count(&|f| f.is_cold),
        count(&|f| f.kind == Kind::Plt),
        count(&|f| f.kind == Kind::SignalReturn),
        count(&|f| f.is_ifunc),
        image.is_stripped(),
    );
}

fn check_invariants(image: &Image) {
    let functions = image.functions();
    assert!(
        functions
            .windows(2)
            .all(|pair| pair[0].address < pair[1].address)
    );
    for function in functions {
        assert_eq!(
            image.layout().offset_of(function.address),
            Some(function.offset_in_file)
        );
        assert!(
            image
                .layout()
                .executable_segment(function.address)
                .is_some()
        );
        if function.size > 0 {
            assert!(image.function_containing(function.address) == Some(function));
        }
    }
}

#[test]
fn every_program_of_the_machine() {
    let paths = [
        LIBC,
        "/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/bin/redis-server",
        "/usr/bin/sqlite3",
        "/usr/bin/memcached",
        "/usr/sbin/nginx",
        "/usr/bin/python3",
        "/bin/bash",
        "/lib64/ld-linux-x86-64.so.2",
    ];
    for path in paths {
        let Some(image) = image(path) else { continue };
        report(path, &image);
        check_invariants(&image);
        assert!(image.functions().len() > 100, "{path}");
        let all = image.find("*").unwrap();
        assert_eq!(
            all.len(),
            image.functions().iter().filter(|f| !f.is_cold).count()
        );
    }
}

#[test]
fn unwind_information_agrees_with_readelf() {
    for path in ["/usr/bin/sqlite3", "/usr/bin/memcached", "/usr/sbin/nginx"] {
        let Some(image) = image(path) else { continue };
        let Some(frames) = tool("readelf", &["--debug-dump=frames", path]) else {
            return;
        };
        let starts: Vec<u64> = frames
            .lines()
            .filter_map(|line| {
                line.split_once(" FDE ")?
                    .1
                    .split_once("pc=")?
                    .1
                    .split_once("..")
                    .map(|(pc, _)| pc)
            })
            .map(|pc| u64::from_str_radix(pc, 16).unwrap())
            .collect();
        println!("{path}: {} frames", starts.len());
        for start in starts {
            assert!(
                image
                    .functions()
                    .binary_search_by_key(&start, |f| f.address)
                    .is_ok(),
                "{start:#x}"
            );
        }
    }
}

#[test]
fn functions_of_libc_have_their_aliases_and_addresses() {
    let Some(image) = image(LIBC) else { return };
    assert_eq!(image.header().soname.as_deref(), Some("libc.so.6"));
    assert!(!image.header().is_static_program() && image.header().refusal_in_process().is_none());

    let malloc = &image.find("malloc").unwrap()[0];
    assert_eq!(malloc.display_name(), "malloc");
    assert!(
        malloc.names.iter().any(|name| &**name == "__libc_malloc"),
        "{:?}",
        malloc.names
    );
    let aliased = &image.find("__libc_malloc").unwrap()[0];
    assert_eq!(malloc, aliased);
    assert_eq!(image.find(&malloc.hex()).unwrap()[0], *malloc);

    assert!(image.find("memcpy").unwrap().iter().any(|f| f.is_ifunc));
    assert!(
        image
            .functions()
            .iter()
            .any(|f| f.kind == Kind::SignalReturn)
    );
    assert!(image.functions().iter().any(|f| f.kind == Kind::Plt));
    assert_eq!(
        image.find("environ").unwrap_err(),
        Error::IsData {
            name: "environ".into()
        }
    );
    let error = image.find("mallok").unwrap_err().to_string();
    assert!(error.contains("`malloc`"), "{error}");
}

#[test]
fn imports_of_sqlite3() {
    let Some(sqlite) = common::image("/usr/bin/sqlite3") else {
        return;
    };
    let opens = sqlite
        .imports()
        .filter(|(name, _)| *name == "sqlite3_open_v2");
    assert_eq!(opens.count(), 1);
}

#[test]
fn addresses_outside_the_code_are_refused() {
    let Some(image) = image("/usr/bin/sqlite3") else {
        return;
    };
    for text in [
        "0x",
        "0xzz",
        "0x+1",
        "0x0",
        "0xffffffffffffffff",
        "0x11112222333344445",
    ] {
        assert_eq!(
            image.find(text).unwrap_err(),
            Error::BadAddress { text: text.into() }
        );
    }
    let inside = image
        .functions()
        .iter()
        .find(|f| f.size > 2 && f.kind == Kind::Plain)
        .unwrap();
    let found = &image.find(&format!("{:#x}", inside.address + 1)).unwrap()[0];
    assert_eq!(
        (found.source, found.offset_in_file),
        (Source::Address, inside.offset_in_file + 1)
    );
    assert_eq!(image.function_containing(inside.address + 1), Some(inside));
    let next = image.next_function_after(inside.address).unwrap();
    assert!(next.address > inside.address);
}

#[test]
fn stripped_programs_have_a_hint_about_their_symbols() {
    let Some(image) = image("/usr/bin/sqlite3") else {
        return;
    };
    if image.is_stripped() {
        let missing = image.missing_symbols(Path::new("/usr/bin/sqlite3"));
        let remedy = missing.unwrap().remedy;
        assert!(remedy.contains("dpkg -S '*/bin/sqlite3'"), "{remedy}");
        println!("{remedy}");
    }
}
