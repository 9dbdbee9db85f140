//! `cargo run -p xtask -- WHAT`: tasks that need more than a line of shell.

use xtask::dependencies::Dependencies;
use xtask::{
    bench_passes, bench_tables, keep, pictures, rooms, root, sbom, schema, sessions, tests, words,
};

const USAGE: &str = "usage: xtask sbom | schema | sessions FOLDER | words | rooms FOLDER… | costs [compare RUN RUN | join FILE PASS…] | picture terminal|bars | tests [--nightly] [--repeat N] [FILTER…]";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let exit_status = match arguments.as_slice() {
        ["sbom"] => {
            println!("{:#}", sbom::document(&Dependencies::resolve()));
            0
        }
        ["schema"] => schema::write(),
        ["sessions", folder] => sessions::put(folder),
        ["words"] => {
            print!("{}", words::table());
            0
        }
        ["rooms", folders @ ..] => {
            for fault in rooms::faults(folders.iter().copied(), &[]) {
                println!("{fault}");
            }
            0
        }
        ["costs"] => status(bench_tables::page().map(|page| {
            std::fs::write(root().join(bench_tables::PAGE), page).expect("the page is ours");
            0
        })),
        ["costs", "compare", one, other] => {
            status(bench_tables::compare(one, other).map(|(agree, text)| {
                print!("{text}");
                i32::from(!agree)
            }))
        }
        ["costs", "join", file, passes @ ..] => {
            status(bench_passes::join(file, passes).map(|()| 0))
        }
        ["picture", "terminal"] => draw(pictures::terminal),
        ["picture", "bars"] => draw(pictures::bars),
        ["tests", options @ ..] => match tests::Options::parse(options) {
            Some(options) => tests::run(&options),
            None => usage(),
        },
        // `tests` starts `keep` for each test.
        ["keep", seconds, program, arguments @ ..] => keep::run(seconds, program, arguments),
        _ => usage(),
    };
    std::process::exit(exit_status);
}

fn draw(picture: fn(&str) -> String) -> i32 {
    let lines = std::io::read_to_string(std::io::stdin()).expect("text");
    print!("{}", picture(&lines));
    0
}

fn status(done: Result<i32, String>) -> i32 {
    done.unwrap_or_else(|why| {
        eprintln!("{why}");
        1
    })
}

fn usage() -> i32 {
    eprintln!("{USAGE}");
    2
}
