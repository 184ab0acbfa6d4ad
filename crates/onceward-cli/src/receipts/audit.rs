//! `onceward receipts audit`: the changes that operators made, with who and why.

use super::admin_client::AdminClient;
use super::explain::{duration_text, shell_quoted, without_control_characters};
use super::{print_json, table};
use crate::admin::shape::AuditEntry;

/// Prints the newest changes, newest first.
pub async fn print(client: &AdminClient, limit: usize, json: bool) -> Result<(), String> {
    let mut entries = client.audit().await?;
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.at_ms));
    entries.truncate(limit);
    if json {
        print_json(&entries);
    } else if entries.is_empty() {
        println!("No changes by hand.");
    } else {
        print!("{}", table::columns(["WHEN", "ACTION", "BY", "WHAT", "REASON"], entries.iter().map(row)));
    }
    Ok(())
}

fn row(entry: &AuditEntry) -> [String; 5] {
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let ago = i64::try_from(now_ms.as_millis()).unwrap_or(i64::MAX)
        - i64::try_from(entry.at_ms).unwrap_or_default();
    let how = entry.how.as_ref().map_or(String::new(), |how| format!(" ({how})"));
    let result = match entry.result.as_deref() {
        Some("made") => String::new(),
        Some(problem) => format!(" refused: {problem}"),
        None => " result not recorded".into(),
    };
    let parts = [&entry.scope, &entry.operation, &entry.key];
    let what: Vec<String> =
        parts.iter().map(|part| part.as_deref().map_or("*".into(), shell_quoted)).collect();
    let text = |text: &Option<String>| text.as_deref().map_or_else(|| "-".into(), without_control_characters);
    [
        format!("{} ago", duration_text(ago)),
        format!("{}{how}{result}", entry.action),
        text(&entry.by),
        what.join(" "),
        text(&entry.reason),
    ]
}
