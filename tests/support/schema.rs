//! Checks what `--json` prints against the book's JSON Schema. This validator is our own, because others need 40
//! packages and a minute to build.

use std::sync::LazyLock;

use serde_json::Value;

static SESSION: LazyLock<Schema> =
    LazyLock::new(|| Schema::of(include_str!("../../docs/src/session.schema.json")));
static DOCTOR: LazyLock<Schema> =
    LazyLock::new(|| Schema::of(include_str!("../../docs/src/doctor.schema.json")));

/// Checks a line. Refuses unknown keys. Users' programs must accept unknown keys, because later versions may have
/// more.
pub(crate) fn check(line: &Value) {
    let fitted = match (line.get("tiptoe"), line.get("checks")) {
        (Some(_), Some(_)) => DOCTOR.fit(&DOCTOR.0, line, ""),
        (Some(_), None) => SESSION.fit(&SESSION.0["$defs"]["Session"], line, ""),
        (None, _) => SESSION.fit(&SESSION.0, line, ""),
    };
    if let Err(fault) = fitted {
        panic!("not as the schema says: {fault}: {line:#}");
    }
}

struct Schema(Value);

impl Schema {
    fn of(text: &str) -> Schema {
        Schema(serde_json::from_str(text).expect("JSON"))
    }

    fn fit(&self, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
        for (keyword, of) in schema.as_object().expect("a schema is an object") {
            let all = of.as_array().map_or(&[][..], Vec::as_slice);
            let is_fit = match keyword.as_str() {
                "$ref" => {
                    let name = of
                        .as_str()
                        .and_then(|target| target.strip_prefix("#/$defs/"));
                    self.fit(&self.0["$defs"][name.expect("a type")], value, path)?;
                    true
                }
                "anyOf" | "oneOf" => all.iter().any(|one| self.fit(one, value, path).is_ok()),
                "const" => of == value,
                "type" if of.is_array() => all.iter().any(|name| is_of(name, value)),
                "type" => is_of(of, value),
                "required" => all
                    .iter()
                    .all(|key| value.get(key.as_str().unwrap_or("")).is_some()),
                "properties" => {
                    for (key, value) in value.as_object().into_iter().flatten() {
                        let schema = of.get(key).ok_or_else(|| format!("{path}: no key {key}"))?;
                        self.fit(schema, value, &format!("{path}/{key}"))?;
                    }
                    true
                }
                "items" => {
                    let items = value.as_array().into_iter().flatten();
                    items
                        .into_iter()
                        .try_for_each(|item| self.fit(of, item, &format!("{path}[]")))?;
                    true
                }
                // JSON Schema applies these keywords only to numbers.
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
            assert!(SESSION.fit(&SESSION.0, &line, "").is_err(), "{line}");
        }
    }
}
