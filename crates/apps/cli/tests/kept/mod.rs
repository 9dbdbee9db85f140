//! Screens that are kept as files.

/// Compares `shown` with a file in `tests`. `TIPTOE_WRITE_SCREENS=1` writes the file first.
#[track_caller]
pub fn check_screen(file: &str, shown: &str) {
    let path = format!("{}/tests/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("TIPTOE_WRITE_SCREENS").is_some() {
        std::fs::write(&path, shown).expect("the folder is writable");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, kept, "{path}:\n{shown}");
}
