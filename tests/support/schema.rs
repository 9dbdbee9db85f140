//! Checks what `--json` prints against the JSON Schema that the book publishes.
//!
//! The checker is our own, because well-known validators need 40 packages and a minute to build. It knows only the
//! keywords that the schema uses, and refuses all others.

use std::sync::LazyLock;

use serde_json::Value;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../docs/src/session.schema.json")).expect("JSON")
});

/// Panics unless a line of `--json` matches the schema. Keys that the schema lacks are refused here, although programs
/// of users must accept them, because later versions may have more.
pub(crate) fn check(line: &Value) {
    let schema = match line.get("tiptoe") {
        Some(_) => &SCHEMA["$defs"]["Session"],
        None => &SCHEMA,
    };
    if let Err(fault) = fit(schema, line, "") {
        panic!("not as the schema says: {fault}: {line:#}");
    }
}

/// Returns the first part of the value that does not match.
fn fit(schema: &Value, value: &Value, path: &str) -> Result<(), String> {
    for (keyword, of) in schema.as_object().expect("a schema is an object") {
        let all = of.as_array().map_or(&[][..], Vec::as_slice);
        let is_fit = match keyword.as_str() {
            "$ref" => {
                let name = of
                    .as_str()
                    .and_then(|target| target.strip_prefix("#/$defs/"));
                fit(&SCHEMA["$defs"][name.expect("a type")], value, path)?;
                true
            }
            "anyOf" | "oneOf" => all.iter().any(|one| fit(one, value, path).is_ok()),
            "const" => of == value,
            "type" if of.is_array() => all.iter().any(|name| is_of(name, value)),
            "type" => is_of(of, value),
            "required" => all
                .iter()
                .all(|key| value.get(key.as_str().unwrap_or("")).is_some()),
            "properties" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    let schema = of.get(key).ok_or_else(|| format!("{path}: no key {key}"))?;
                    fit(schema, value, &format!("{path}/{key}"))?;
                }
                true
            }
            "items" => {
                let items = value.as_array().into_iter().flatten();
                items
                    .into_iter()
                    .try_for_each(|item| fit(of, item, &format!("{path}[]")))?;
                true
            }
            // The standard applies these keywords only to numbers.
            "minimum" => !value.is_number() || value.as_f64() >= of.as_f64(),
            "maximum" => !value.is_number() || value.as_f64() <= of.as_f64(),
            "$defs" | "$id" | "$schema" | "description" | "format" | "title" => true,
            other => panic!("the schema has the keyword `{other}`, which this checker lacks"),
        };
        if !is_fit {
            return Err(format!("{path}: {keyword} {of:#}"));
        }
    }
    Ok(())
}

fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str().expect("the name of a type") {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        other => panic!("the schema has the type `{other}`, which this checker lacks"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_that_the_schema_does_not_describe_is_refused() {
        let interval = json!({"at_ns": 1, "duration_ns": 1, "counts": [{"key": "f", "count": 2}]});
        check(&interval);
        let changed = |path: &str, value: Value| {
            let mut line = interval.clone();
            match path {
                "key" => line["counts"][0]["key"] = value,
                path => line[path] = value,
            }
            line
        };
        for line in [
            changed("at_ns", json!("1")),
            changed("at_ns", json!(-1)),
            changed("at_ns", Value::Null),
            changed("new", json!(1)),
            changed("key", json!(1)),
            json!({"at_ns": 1, "counts": []}),
            json!(1),
        ] {
            assert!(fit(&SCHEMA, &line, "").is_err(), "{line}");
        }
    }
}
