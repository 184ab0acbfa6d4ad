//! `onceward verify --discover`: checks the operations of an `OpenAPI` description.

use std::path::Path;
use std::process::ExitCode;

use onceward_verify::endpoint::Check;
use onceward_verify::openapi;
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Number, Value};

use super::Args;

/// A check of each operation that declares a key, by its name, and the names of the others.
type Discovered = (Vec<(String, Check)>, Vec<String>);

impl Args {
    pub(super) async fn check_discovered(&self, path: &Path) -> Result<ExitCode, String> {
        let (checks, keyless) = self.discovered(path)?;
        // The text of a report has no place for it.
        eprintln!(
            "{} operations declare a key: {}",
            checks.len(),
            names(checks.iter().map(|(name, _)| name))
        );
        eprintln!("{} change something and declare none: {}", keyless.len(), names(&keyless));
        if checks.is_empty() {
            let names = self.key_names().join(", ");
            return Err(format!(
                "no operation declares a key: a header field, a parameter of the query or a member of the body that is \
                 named {names} or has `idempoten` in its name"
            ));
        }
        self.check_many(checks, Some(keyless.as_slice())).await
    }

    /// What the description has to check.
    pub(super) fn discovered(&self, path: &Path) -> Result<Discovered, String> {
        let file = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
        let description = read(&text).map_err(|error| format!("{file}: {error}"))?;
        let operations = openapi::operations(&description, &self.key_names())
            .map_err(|error| format!("{file}: {error}"))?;
        let base = self.urls.first().map(|url| url.trim_end_matches('/')).or(openapi::server(&description));
        let base = base.filter(|base| base.contains("://"));
        let base = base.ok_or_else(|| format!("{file} names no server by a full URL: give --url"))?;
        let (mut checks, mut keyless) = (Vec::new(), Vec::new());
        for operation in operations {
            if !operation.has_key() {
                keyless.push(operation.name());
                continue;
            }
            let check = self.check(&format!("{base}{}", operation.target))?;
            let key_header = operation.key_header.as_ref().unwrap_or(&self.key_header);
            let mut headers = check.headers.clone();
            let has = |name: &str| check.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
            headers.extend(operation.headers.iter().filter(|(name, _)| !has(name)).cloned());
            let check = check
                .with_method(&operation.method)
                .with_key_header(key_header)
                .with_key_parameter(operation.key_parameter.clone())
                .with_key_pointer(operation.key_pointer.clone())
                .with_body(operation.body.clone().unwrap_or_default())
                // What belongs to one endpoint belongs to no other.
                .with_alt_body(None)
                .with_headers(headers);
            checks.push((operation.name(), check));
        }
        Ok((checks, keyless))
    }

    /// What a key may be named, wherever it is.
    fn key_names(&self) -> Vec<&str> {
        let member = self.key_pointer.as_deref().and_then(|pointer| pointer.rsplit('/').next());
        let names = [Some(self.key_header.as_str()), self.key_parameter.as_deref(), member];
        names.into_iter().flatten().collect()
    }
}

fn names<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

/// Reads YAML or JSON.
fn read(text: &str) -> Result<Value, String> {
    if let Ok(json) = serde_json::from_str(text) {
        return Ok(json);
    }
    let documents = Yaml::load_from_str(text).map_err(|error| error.to_string())?;
    documents.first().map(json).ok_or_else(|| "it is empty".to_owned())
}

/// The same value as JSON. What JSON does not have is none.
fn json(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Boolean(value)) => Value::from(*value),
        Yaml::Value(Scalar::Integer(value)) => Value::from(*value),
        Yaml::Value(Scalar::FloatingPoint(value)) => {
            Number::from_f64(value.into_inner()).map_or(Value::Null, Value::Number)
        }
        Yaml::Value(Scalar::String(value)) => Value::from(value.as_ref()),
        Yaml::Sequence(items) => items.iter().map(json).collect(),
        Yaml::Mapping(members) => {
            let member = |(name, value): (&Yaml<'_>, &Yaml<'_>)| {
                let name = match json(name) {
                    Value::String(name) => name,
                    other => other.to_string(),
                };
                (name, json(value))
            };
            Value::Object(members.iter().map(member).collect::<Map<String, Value>>())
        }
        Yaml::Tagged(_, value) => json(value),
        _ => Value::Null,
    }
}
