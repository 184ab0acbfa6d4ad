//! Reads an `OpenAPI` 3 description: which operations change something, which of them declare an idempotency key, and
//! example requests for them, made of the examples and schemas that it has.

mod example;
mod key_member;

use std::fmt::Write;

use serde_json::Value;

use crate::endpoint::{Error, Result};

/// An operation that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DescribedOperation {
    /// Such as `POST`.
    pub method: String,
    /// The path as the description has it, such as `/orders/{id}/charges`.
    pub path: String,
    /// The path with examples in the place of its parameters, and with the parameters of the query that are required.
    pub target: String,
    /// The header field that carries the key, if it declares one there.
    pub key_header: Option<String>,
    /// The parameter of the query that carries it, if it declares one there and none in a header field.
    pub key_parameter: Option<String>,
    /// Where in the JSON of the body it is, if it declares one there and nowhere else: a JSON pointer.
    pub key_pointer: Option<String>,
    /// Other header fields that are required, with examples.
    pub headers: Vec<(String, String)>,
    /// An example of its body, if it has one.
    pub body: Option<String>,
}

impl DescribedOperation {
    /// Such as `POST /charges`.
    pub fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Whether it declares a key anywhere.
    pub fn has_key(&self) -> bool {
        self.key_header.is_some() || self.key_parameter.is_some() || self.key_pointer.is_some()
    }
}

const METHODS: [&str; 4] = ["post", "put", "patch", "delete"];

/// The operations of a description that change something. A key is a header field, a parameter of the query or a member of
/// the body with one of these names, or with `idempoten` in its name.
pub fn operations(description: &Value, key_names: &[&str]) -> Result<Vec<DescribedOperation>> {
    let version = description["openapi"].as_str().unwrap_or_default();
    if !version.starts_with("3.") {
        return Err(Error::invalid("this is no OpenAPI 3 description: `openapi: 3.…` is missing"));
    }
    let paths = description["paths"].as_object();
    let mut found = Vec::new();
    for (path, item) in paths.into_iter().flatten() {
        let item = example::resolve(description, item);
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                found.push(read(description, [path, method], item, operation, key_names));
            }
        }
    }
    Ok(found)
}

/// The URL of the first server that it names.
pub fn server(description: &Value) -> Option<&str> {
    description["servers"][0]["url"].as_str().map(|url| url.trim_end_matches('/'))
}

fn read(
    description: &Value,
    [path, method]: [&str; 2],
    item: &Value,
    operation: &Value,
    key_names: &[&str],
) -> DescribedOperation {
    let own = operation["parameters"].as_array().into_iter().flatten();
    let shared = item["parameters"].as_array().into_iter().flatten();
    let (mut target, mut query, mut headers) = (path.to_owned(), Vec::new(), Vec::new());
    let (mut key_header, mut key_parameter, mut without_header) = (None, None, Vec::new());
    let mut seen = Vec::new();
    // Those of the operation come first: they replace those of the path.
    for parameter in own.chain(shared).map(|parameter| example::resolve(description, parameter)) {
        let (Some(name), Some(place)) = (parameter["name"].as_str(), parameter["in"].as_str()) else {
            continue;
        };
        if seen.contains(&(name, place)) {
            continue;
        }
        seen.push((name, place));
        let example = || example::of_parameter(description, parameter);
        let is_required = parameter["required"] == true;
        match place {
            "path" => target = target.replace(&format!("{{{name}}}"), &encoded(&example())),
            "query" if is_key(name, key_names) => {
                key_parameter = Some(name.to_owned());
                without_header
                    .extend(is_required.then(|| format!("{}={}", encoded(name), encoded(&example()))));
            }
            "query" if is_required => query.push(format!("{}={}", encoded(name), encoded(&example()))),
            "header" if is_key(name, key_names) => key_header = Some(name.to_owned()),
            "header" if is_required => headers.push((name.to_owned(), example())),
            _ => {}
        }
    }
    // Where the key is in a header field, a parameter that could have been it is like any other.
    if key_header.is_some() {
        query.append(&mut without_header);
    }
    if !query.is_empty() {
        target = format!("{target}?{}", query.join("&"));
    }
    let content = &example::resolve(description, &operation["requestBody"])["content"];
    let is_json = |media: &str| media.starts_with("application/json") || media.ends_with("+json");
    let media = content.as_object().and_then(|content| content.iter().find(|(name, _)| is_json(name)));
    if let Some((name, _)) = media
        && name != "application/json"
    {
        headers.push(("Content-Type".to_owned(), name.clone()));
    }
    let body = media.map(|(_, media)| example::of_media(description, media));
    let key_parameter = key_parameter.filter(|_| key_header.is_none());
    let key_pointer = media.zip(body.as_ref()).and_then(|((_, media), body)| {
        let is_elsewhere = key_header.is_some() || key_parameter.is_some();
        let find = || key_member::find(description, &media["schema"], body, &|name| is_key(name, key_names));
        if is_elsewhere { None } else { find() }
    });
    DescribedOperation {
        method: method.to_uppercase(),
        path: path.to_owned(),
        target,
        key_header,
        key_parameter,
        key_pointer,
        headers,
        body: body.map(|body| body.to_string()),
    }
}

fn is_key(name: &str, key_names: &[&str]) -> bool {
    key_names.iter().any(|key| name.eq_ignore_ascii_case(key))
        || name.to_ascii_lowercase().contains("idempoten")
}

/// Percent-encoded for a path or a query.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
#[path = "openapi_test.rs"]
mod tests;
