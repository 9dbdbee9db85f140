//! The crate's page names every key of the JSON form.

/// The page, and the modules with the types of the form.
const PAGE: &str = include_str!("../src/lib.rs");
const MODULES: [&str; 13] = [
    include_str!("../src/cost.rs"),
    include_str!("../src/ends.rs"),
    include_str!("../src/event.rs"),
    include_str!("../src/latency.rs"),
    include_str!("../src/lib.rs"),
    include_str!("../src/lock.rs"),
    include_str!("../src/now.rs"),
    include_str!("../src/records.rs"),
    include_str!("../src/scope.rs"),
    include_str!("../src/space.rs"),
    include_str!("../src/stat.rs"),
    include_str!("../src/wait.rs"),
    include_str!("../src/watch.rs"),
];

fn is_of_field(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
}

/// Returns the keys of a module's types. The keys of a flattened field are those of its own type.
fn keys(module: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let (mut renamed, mut is_flat) = (None, false);
    for line in module.lines() {
        let line = line.trim();
        if let Some((_, name)) = line.split_once("rename = \"") {
            renamed = name.split('"').next();
        } else if line.starts_with("#[serde(flatten") {
            is_flat = true;
        } else if let Some((field, _)) = line
            .strip_prefix("pub ")
            .and_then(|line| line.split_once(": "))
            .filter(|(field, _)| field.bytes().all(is_of_field))
        {
            let key = renamed.take().unwrap_or(field);
            if !std::mem::take(&mut is_flat) {
                keys.push(key.to_owned());
            }
        }
    }
    keys
}

/// The page lacked keys, such as "asleep_ns", "cgroup" and "timed".
#[test]
fn keys_were_missing_from_the_page() {
    let page = PAGE.lines().filter(|line| line.starts_with("//!"));
    let page: String = page.collect();
    let all = MODULES.iter().flat_map(|module| keys(module));
    let missing: Vec<String> = all
        .filter(|key| !page.contains(&format!("\"{key}\"")))
        .collect();
    assert_eq!(missing, [""; 0]);
}
