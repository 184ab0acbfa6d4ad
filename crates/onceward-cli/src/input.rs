//! Reads arguments that may be given in a file: bodies, and header fields.

use std::io::Read;
use std::path::Path;

/// The text itself, the content of the file after `@`, or standard input for `@-`.
pub fn read(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(|error| format!("standard input: {error}"))?;
            Ok(bytes)
        }
        Some(path) => std::fs::read(Path::new(path)).map_err(|error| format!("{path}: {error}")),
    }
}

/// Header fields, as names and values: each argument is one field, or a file with one per line. A message never
/// contains a value, because it may be a secret.
pub fn header_fields(given: &[String]) -> Result<Vec<(String, String)>, String> {
    let mut fields = Vec::new();
    for text in given {
        let lines = String::from_utf8(read(text)?).map_err(|_| "a file of header fields is not UTF-8")?;
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let (name, value) = line.split_once(':').ok_or("a header field is written 'Name: value'")?;
            fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    Ok(fields)
}
