//! Makes examples: those that the description gives, or else values that fit its schemas.

use serde_json::{Map, Value, json};

/// Schemas that refer to themselves end here.
const DEPTH_MAX: usize = 8;
/// References that lead to references.
const REFERENCES_MAX: usize = 16;

/// What a reference within the description stands for, or the value itself.
pub(super) fn resolve<'a>(description: &'a Value, value: &'a Value) -> &'a Value {
    let mut value = value;
    for _ in 0..REFERENCES_MAX {
        let Some(pointer) = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) else {
            return value;
        };
        match description.pointer(pointer) {
            Some(found) => value = found,
            None => return value,
        }
    }
    value
}

/// The text of a parameter.
pub(super) fn of_parameter(description: &Value, parameter: &Value) -> String {
    match given(description, parameter).unwrap_or_else(|| of_schema(description, &parameter["schema"], 0)) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// The body of a media type.
pub(super) fn of_media(description: &Value, media: &Value) -> Value {
    given(description, media).unwrap_or_else(|| of_schema(description, &media["schema"], 0))
}

/// The example that is given, or the first of those that are.
fn given(description: &Value, of: &Value) -> Option<Value> {
    if let Some(example) = of.get("example") {
        return Some(example.clone());
    }
    let first = of.get("examples")?.as_object()?.values().next()?;
    resolve(description, first).get("value").cloned()
}

/// A value that fits a schema.
fn of_schema(description: &Value, schema: &Value, depth: usize) -> Value {
    let schema = resolve(description, schema);
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    let examples = schema["examples"].as_array().and_then(|examples| examples.first());
    let choice = schema["enum"].as_array().and_then(|choices| choices.first());
    if let Some(value) =
        schema.get("example").or(examples).or(schema.get("const")).or(schema.get("default")).or(choice)
    {
        return value.clone();
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let mut all = Map::new();
        for part in parts.iter().map(|part| of_schema(description, part, depth + 1)) {
            all.extend(part.as_object().cloned().unwrap_or_default());
        }
        all.extend(members(description, schema, depth));
        return Value::Object(all);
    }
    for choices in ["oneOf", "anyOf"] {
        if let Some(first) = schema[choices].as_array().and_then(|choices| choices.first()) {
            return of_schema(description, first, depth + 1);
        }
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        kind => kind.as_str(),
    };
    match kind {
        Some("integer") => json!(integer(schema)),
        Some("number") => schema["minimum"].as_f64().map_or(json!(1), |least| json!(least + 1.0)),
        Some("boolean") => json!(true),
        Some("array") => {
            let count = schema["minItems"].as_u64().unwrap_or(1).clamp(1, 16);
            (0..count).map(|_| of_schema(description, &schema["items"], depth + 1)).collect()
        }
        Some("string") => json!(text(schema)),
        Some("null") => Value::Null,
        _ if kind == Some("object") || schema.get("properties").is_some() => {
            Value::Object(members(description, schema, depth))
        }
        _ => json!({}),
    }
}

fn integer(schema: &Value) -> i64 {
    let least = schema["minimum"].as_i64();
    let least = least.or_else(|| schema["exclusiveMinimum"].as_i64().map(|below| below + 1));
    let most = schema["maximum"].as_i64().unwrap_or(i64::MAX);
    least.unwrap_or(1).max(1_i64.min(most))
}

/// The members that are required, and those with an example.
fn members(description: &Value, schema: &Value, depth: usize) -> Map<String, Value> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object();
    let mut members = Map::new();
    for (name, property) in properties.into_iter().flatten() {
        let resolved = resolve(description, property);
        let has_example = resolved.get("example").or(resolved.get("examples")).is_some();
        if resolved["readOnly"] != true && (required.contains(&name.as_str()) || has_example) {
            members.insert(name.clone(), of_schema(description, property, depth + 1));
        }
    }
    members
}

fn text(schema: &Value) -> String {
    let text = match schema["format"].as_str() {
        Some("uuid") => "7d444840-9dc0-11d1-b245-5ffdce74fad2",
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("date") => "2026-01-31",
        Some("email") => "anna@example.com",
        Some("uri" | "url") => "https://example.com/",
        _ => "text",
    };
    let least = schema["minLength"].as_u64().map_or(0, |least| usize::try_from(least).unwrap_or_default());
    let most =
        schema["maxLength"].as_u64().map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let padded = format!("{text}{}", "x".repeat(least.min(10_000).saturating_sub(text.len())));
    padded.chars().take(most).collect()
}
