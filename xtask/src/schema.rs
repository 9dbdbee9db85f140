//! Makes the book's page of JSON keys from the schemas beside it.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Map, Value};

use crate::{read, root};

const SCHEMAS: [&str; 2] = [
    "docs/src/session.schema.json",
    "docs/src/doctor.schema.json",
];
const PAGE: &str = "docs/src/json.md";

const MARK: &str = "<!-- keys: made by `cargo run -p xtask -- schema` -->";

/// Writes the schemas, and the page. Returns an exit status.
pub fn write() -> i32 {
    for of in [
        ["-p", "tiptoe-session", "--lib"],
        ["-p", "tiptoe", "--bins"],
    ] {
        let mut test = Command::new(env!("CARGO"));
        test.args(["test", "--quiet"])
            .args(of)
            .arg("the_schema_of_the_book")
            .env("TIPTOE_WRITE_SCHEMA", "1")
            .current_dir(root());
        if !test.status().expect("cargo runs").success() {
            return 1;
        }
    }
    std::fs::write(root().join(PAGE), todays_page()).expect("a page");
    0
}

fn todays_page() -> String {
    page(&read(PAGE), &SCHEMAS.map(read))
}

/// Returns a fault if the page does not match the schemas.
pub fn stale() -> Vec<String> {
    let what = || format!("{PAGE} is not of the schemas: run `cargo run -p xtask -- schema`");
    let is_stale = todays_page() != read(PAGE);
    is_stale.then(what).into_iter().collect()
}

fn page(page: &str, schemas: &[String]) -> String {
    let (own, _) = page.split_once(MARK).unwrap_or((page, ""));
    let mut made = format!("{own}{MARK}\n");
    for schema in schemas {
        let schema: Value = serde_json::from_str(schema).expect("JSON");
        for name in in_order(&schema) {
            made.push_str(&section(&name, &schema["$defs"][&name]));
        }
    }
    made
}

/// Returns the types depth first, each once.
fn in_order(schema: &Value) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    let mut open = references(&schema["anyOf"]);
    open.reverse();
    while let Some(name) = open.pop() {
        if !order.contains(&name) {
            let inner = references(&schema["$defs"][&name]);
            open.extend(inner.into_iter().rev());
            order.push(name);
        }
    }
    order
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| match (key.as_str(), value.as_str()) {
                ("$ref", Some(target)) => vec![type_of(target).to_owned()],
                _ => references(value),
            })
            .collect(),
        Value::Array(all) => all.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

fn type_of(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or(reference)
}

fn section(name: &str, schema: &Value) -> String {
    let mut text = format!("\n## {name}\n\n{}\n\n", description(schema));
    let variants = schema["oneOf"].as_array();
    if let Some(kinds) = variants.filter(|all| all.iter().all(|one| one["type"] == "object")) {
        text.push_str("| keys | is |\n|---|---|\n");
        for one in kinds {
            let _ = writeln!(text, "| {} | {} |", keys(one), description(one));
        }
        return text;
    }
    if let Some(words) = variants {
        text.push_str("| word | is |\n|---|---|\n");
        for word in words {
            let _ = writeln!(text, "| {} | {} |", word["const"], description(word));
        }
        return text;
    }
    text.push_str("| key | type | is |\n|---|---|---|\n");
    let none = Map::new();
    for (key, of_key) in schema["properties"].as_object().unwrap_or(&none) {
        let required = schema["required"].as_array().into_iter().flatten();
        let mark = match required.into_iter().any(|name| name == key) {
            true => "",
            false => "?",
        };
        let (kind, is) = (kind(key, of_key), description(of_key));
        let _ = writeln!(text, "| `{key}`{mark} | {kind} | {is} |");
    }
    text
}

fn keys(schema: &Value) -> String {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let key = |(name, of_key): (&String, &Value)| match &of_key["const"] {
        Value::Null => format!("`{name}`: {}", kind(name, of_key)),
        value => format!("`{name}`: {value}"),
    };
    properties.map(key).collect::<Vec<_>>().join(", ")
}

fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.replace('|', "\\|")
}

fn kind(key: &str, schema: &Value) -> String {
    if let Some(target) = schema["$ref"].as_str() {
        let name = type_of(target);
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let kinds: Vec<String> = any.iter().map(|one| kind(key, one)).collect();
        return kinds.join(" or ");
    }
    if let Some(types) = schema["type"].as_array() {
        let types: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
        return types.join(" or ");
    }
    match schema["type"].as_str().unwrap_or("any") {
        "array" => format!("list of {}", kind(key, &schema["items"])),
        "integer" | "number" if key.ends_with("_ns") => "ns".to_owned(),
        "integer" => "number".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_of_each_type_has_a_row() {
        let schema = r##"{"anyOf": [{"$ref": "#/$defs/Run"}], "$defs": {
            "Basis": {"description": "Its basis.", "oneOf": [{"const": "a", "description": "A."}]},
            "End": {"description": "Its end.", "oneOf": [{"type": "object", "description": "By a signal.",
                "properties": {"kind": {"const": "killed"}, "signal": {"type": "integer"}}}]},
            "Run": {"description": "A run.", "required": ["own_ns"], "properties": {
                "basis": {"$ref": "#/$defs/Basis"},
                "end": {"$ref": "#/$defs/End"},
                "names": {"type": "array", "items": {"type": "string"}},
                "own_ns": {"type": "integer", "description": "Own | time."}}}}}"##;
        let expected = format!(
            "# JSON\n{MARK}\n\n## Run\n\nA run.\n\n| key | type | is |\n|---|---|---|\n\
             | `basis`? | [Basis](#basis) |  |\n| `end`? | [End](#end) |  |\n| `names`? | list of string |  |\n\
             | `own_ns` | ns | Own \\| time. |\n\n## Basis\n\nIts basis.\n\n| word | is |\n|---|---|\n\
             | \"a\" | A. |\n\n## End\n\nIts end.\n\n| keys | is |\n|---|---|\n\
             | `kind`: \"killed\", `signal`: number | By a signal. |\n"
        );
        let old = format!("# JSON\n{MARK}\nold\n");
        assert_eq!(page(&old, &[schema.to_owned()]), expected);
    }
}
