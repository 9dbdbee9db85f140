//! The book's JSON Schemas, which `cargo run -p xtask -- schema` writes. Tests of the types' crates include this file.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

pub(crate) fn check<Line: JsonSchema>(name: &str, option: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/src");
    let file = format!("{folder}/{name}.schema.json");
    let schema = schema::<Line>(name, option);
    if std::env::var_os("TIPTOE_WRITE_SCHEMA").is_some() {
        std::fs::write(&file, &schema).expect("the book can be written");
    }
    let published = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        published == schema,
        "{file} is stale; run `cargo run -p xtask -- schema`"
    );
}

fn schema<Line: JsonSchema>(name: &str, option: &str) -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<Line>();
    let mut schema = schema.to_value();
    tidy(&mut schema);
    let map = schema.as_object_mut().expect("a schema is an object");
    let version = env!("CARGO_PKG_VERSION");
    map.insert("$id".into(), format!("urn:tiptoe:{version}:{name}").into());
    map.insert("title".into(), format!("tiptoe {version}: {option}").into());
    format!("{schema:#}\n")
}

/// Removes defaults, line breaks and links, and `null` from optional keys, which are absent instead.
fn tidy(schema: &mut Value) {
    let Value::Object(map) = schema else {
        schema.as_array_mut().into_iter().flatten().for_each(tidy);
        return;
    };
    map.remove("default");
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = without_links(text);
    }
    let required = map.get("required").cloned().unwrap_or_default();
    let is_required = |key: &str| {
        required
            .as_array()
            .is_some_and(|all| all.contains(&key.into()))
    };
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        for (key, property) in properties {
            if !is_required(key) {
                property.as_object_mut().into_iter().for_each(without_null);
            }
            tidy(property);
        }
    }
    let others = map.iter_mut().filter(|(key, _)| *key != "properties");
    others.for_each(|(_, value)| tidy(value));
}

fn without_links(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ").replace("[`", "`");
    let mut parts = line.split("`]");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let target = part.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        plain.push('`');
        plain.push_str(target.map_or(part, |(_, after)| after));
    }
    plain
}

fn without_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            schema.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(any)) = schema.get_mut("anyOf") {
        any.retain(|one| one["type"] != "null");
        if let [Value::Object(only)] = &mut any[..] {
            let only = std::mem::take(only);
            schema.remove("anyOf");
            schema.extend(only);
        }
    }
}

#[test]
fn links_of_comments_kept_their_targets() {
    let text = "As [`a`](crate::A::a),\n [`b`] (not c) and `d`";
    assert_eq!(without_links(text), "As `a`, `b` (not c) and `d`");
}
