//! Finds the member of a body that is the key.

use serde_json::Value;

use super::example::resolve;

/// Schemas that refer to themselves end here.
const DEPTH_MAX: usize = 8;

/// Where the key is: the member of a schema, or of an example, that has such a name. The object that it belongs in must be in
/// the example, since the key is put there.
pub(super) fn find(
    description: &Value,
    schema: &Value,
    example: &Value,
    is_key: &dyn Fn(&str) -> bool,
) -> Option<String> {
    in_object(description, schema, example, is_key, 0)
}

fn in_object(
    description: &Value,
    schema: &Value,
    example: &Value,
    is_key: &dyn Fn(&str) -> bool,
    depth: usize,
) -> Option<String> {
    let members = example.as_object().filter(|_| depth <= DEPTH_MAX)?;
    let schema = resolve(description, schema);
    let properties = || schema["properties"].as_object().into_iter().flatten();
    // What only answers have cannot be sent.
    let is_sent = |property: &Value| resolve(description, property)["readOnly"] != true;
    let declared = properties().find(|(name, property)| is_key(name) && is_sent(property));
    let named = declared.map(|(name, _)| name).or_else(|| members.keys().find(|name| is_key(name)));
    if let Some(name) = named {
        return Some(format!("/{}", escaped(name)));
    }
    for parts in ["allOf", "oneOf", "anyOf"] {
        for part in schema[parts].as_array().into_iter().flatten() {
            if let Some(found) = in_object(description, part, example, is_key, depth + 1) {
                return Some(found);
            }
        }
    }
    for (name, value) in members {
        let property = &schema["properties"][name.as_str()];
        if let Some(found) = in_object(description, property, value, is_key, depth + 1) {
            return Some(format!("/{}{found}", escaped(name)));
        }
    }
    None
}

/// As a part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
