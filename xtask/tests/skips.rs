//! The last lines of `make test` list what tests skipped.

#[path = "../../tests/support/skipped.rs"]
mod skipped;

use std::process::Command;

use skipped::skipped;

#[test]
fn a_skip_is_in_the_summary_and_fails_where_everything_must_run() {
    let skips = std::env::temp_dir().join(format!("tiptoe-skips-{}", std::process::id()));
    // SAFETY: this program has no other test, so no other thread reads the environment.
    unsafe { std::env::set_var("TIPTOE_SKIPS", &skips) };
    skipped("a thing", "it is\nnot there");
    let line =
        "a_skip_is_in_the_summary_and_fails_where_everything_must_run: a thing (it is not there)";
    let written = std::fs::read_to_string(&skips).expect("the file of skips");
    assert_eq!(written, format!("{line}\n"));
    for (must_run, succeeds) in [("0", true), ("1", false)] {
        let mut summary = Command::new("../scripts/summary.sh");
        let ran = summary
            .env("TIPTOE_MUST_RUN", must_run)
            .output()
            .expect("bash");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(
            said.contains(&format!("skipped (not listed): {line}")),
            "{said}"
        );
        assert_eq!(ran.status.success(), succeeds, "{said}");
    }
    std::fs::remove_file(skips).expect("our own file");
}
