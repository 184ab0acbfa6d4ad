//! Finds the secrets in the options of a check and takes them out of everything that is reported. A report is kept in
//! logs and build artifacts.

use std::fmt::Write;

use serde_json::Value;

use super::check::{Check, Effects};
use super::report::Report;

/// Parts of the names of header fields, parameters and variables whose values are credentials.
const CREDENTIALS: [&str; 12] = [
    "auth",
    "cookie",
    "key",
    "token",
    "secret",
    "passw",
    "credential",
    "session",
    "signature",
    "dpop",
    "jwt",
    "otp",
];
/// The same for members of a body, where `key` and `session` are ordinary words.
const CREDENTIALS_IN_BODIES: [&str; 4] = ["passw", "secret", "token", "api_key"];
/// Shorter values are not searched for in a text: they are everywhere.
const CHARS_MIN: usize = 4;
/// What is put in the place of a secret.
const MASK: &str = "…";

/// Whether the value of a thing of this name is a credential.
pub(super) fn is_credential(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    CREDENTIALS.iter().any(|part| lower.contains(part))
}

/// Whether the value of a member of this name is a credential.
fn is_credential_in_body(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    CREDENTIALS_IN_BODIES.iter().any(|part| lower.contains(part))
}

/// A JSON body with its credentials taken out; none where there are none.
pub(super) fn without_credentials(body: &[u8]) -> Option<String> {
    /// Says how many there were.
    fn mask(json: &mut Value) -> usize {
        match json {
            Value::Array(items) => items.iter_mut().map(mask).sum(),
            Value::Object(members) => {
                let mask_member = |(name, value): (&String, &mut Value)| {
                    if value.is_string() && is_credential_in_body(name) {
                        *value = Value::from(MASK);
                        return 1;
                    }
                    mask(value)
                };
                members.iter_mut().map(mask_member).sum()
            }
            _ => 0,
        }
    }
    let mut json: Value = serde_json::from_slice(body).ok()?;
    (mask(&mut json) > 0).then(|| json.to_string())
}

/// Values that must not appear in a report.
#[derive(Clone, Debug, Default)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn of(check: &Check) -> Self {
        let mut secrets = Self::default();
        let hooks =
            check.fail_headers.iter().chain(&check.fail_after_effect_headers).chain(&check.slow_header);
        let tenants = check.tenants.iter().flatten().chain(&check.refreshed);
        for (name, value) in check.headers.iter().chain(hooks).chain(tenants).chain(&check.fresh_fields) {
            secrets.field(name, value);
        }
        let urls = [&check.other_url, &check.start_url, &check.versioned_url];
        let urls = urls.into_iter().flatten().chain(&check.also_urls).chain([&check.url]);
        urls.for_each(|url| secrets.url(url));
        match &check.effects {
            Effects::Url { url, .. } => secrets.url(url),
            Effects::Sql { url, .. } => secrets.url(url),
            Effects::Command(command) => secrets.command(command),
            Effects::Unseen => {}
        }
        [&check.start_command, &check.ready_command].into_iter().flatten().for_each(|c| secrets.command(c));
        let mut bodies = vec![Some(&check.body), check.alt_body.as_ref(), check.versioned_body.as_ref()];
        if let Some(webhook) = &check.webhook {
            secrets.add(&webhook.secret);
            secrets.url(&webhook.url);
            bodies.push(Some(&webhook.body));
        }
        bodies.into_iter().flatten().for_each(|body| secrets.body(body));
        secrets.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.0.dedup();
        secrets
    }

    /// The value of a header field, if it is a credential: all of it, and what follows a scheme or a name in it.
    fn field(&mut self, name: &str, value: &str) {
        if is_credential(name) {
            self.credential(value);
        }
    }

    /// A value that is a credential, whatever it is called.
    pub(super) fn credential(&mut self, value: &str) {
        self.add(value);
        for part in value.split([';', ',']) {
            self.add(part.split_once('=').map_or(part, |(_, value)| value).trim());
            self.add(part.split_whitespace().last().unwrap_or_default());
        }
    }

    /// The password and the parameters of a URL.
    fn url(&mut self, url: &str) {
        let Some((_, rest)) = url.split_once("://") else { return };
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if let Some((user, _)) = authority.rsplit_once('@')
            && let Some((_, password)) = user.split_once(':')
        {
            self.0.push(password.to_owned());
        }
        for (name, value) in rest.split(['?', '&']).filter_map(|part| part.split_once('=')) {
            if is_credential(name) {
                self.add(value);
            }
        }
    }

    /// What a command says of passwords: in URLs, in `NAME=value` and after `--password`.
    fn command(&mut self, command: &str) {
        let words: Vec<&str> =
            command.split_whitespace().map(|word| word.trim_matches(['\'', '"', ';'])).collect();
        for (index, word) in words.iter().enumerate() {
            self.url(word);
            if let Some((name, value)) = word.split_once('=')
                && is_credential(name)
            {
                self.add(value.trim_matches(['\'', '"']));
            }
            let next = words.get(index + 1).copied().unwrap_or_default();
            if word.starts_with('-') && is_credential(word) {
                self.add(next);
            }
            // As curl and database clients have it.
            if ["-u", "--user"].contains(word)
                && let Some((_, password)) = next.split_once(':')
            {
                self.add(password);
            }
            if let Some(password) =
                word.strip_prefix("-p").filter(|_| command.contains("mysql") || command.contains("mariadb"))
                && !password.chars().all(|c| c.is_ascii_digit())
            {
                // MySQL takes it without a space; a port has another letter.
                self.add(password);
            }
        }
        // Header fields, which are quoted because of the space in them.
        for quoted in command.split(['\'', '"']) {
            if let Some((name, value)) = quoted.split_once(':')
                && !name.contains(char::is_whitespace)
            {
                self.field(name, value.trim());
            }
        }
    }

    /// What a body says of passwords: in JSON, or in a form.
    fn body(&mut self, body: &[u8]) {
        match serde_json::from_slice(body) {
            Ok(json) => self.json(&json),
            Err(_) => {
                let text = String::from_utf8_lossy(body);
                for (name, value) in text.split('&').filter_map(|part| part.split_once('=')) {
                    if is_credential_in_body(name) {
                        self.add(value.trim());
                    }
                }
            }
        }
    }

    fn json(&mut self, json: &Value) {
        match json {
            Value::Array(items) => items.iter().for_each(|item| self.json(item)),
            Value::Object(members) => {
                for (name, value) in members {
                    match value.as_str() {
                        Some(text) if is_credential_in_body(name) => self.add(text),
                        _ => self.json(value),
                    }
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, value: &str) {
        if value.chars().count() >= CHARS_MIN && !self.0.iter().any(|other| other == value) {
            self.0.push(value.to_owned());
            self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    /// The text without them.
    pub(super) fn conceal(&self, text: &mut String) {
        for secret in self.0.iter().filter(|secret| !secret.is_empty()) {
            if text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), MASK);
            }
        }
        *text = without_password(text);
    }
}

/// Takes what a command says of passwords out of a text.
pub(crate) fn conceal_command_in(text: &mut String, command: &str) {
    let mut secrets = Secrets::default();
    secrets.command(command);
    secrets.conceal(text);
}

/// Takes what a command says of passwords out of a report.
pub(crate) fn conceal_command(report: &mut Report, command: &str) {
    let mut secrets = Secrets::default();
    secrets.command(command);
    report.conceal(&secrets);
}

/// A text without the passwords of the URLs in it, however short they are.
fn without_password(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(['/', '?', '#', ' ', '\'', '"', '`']).unwrap_or(after.len());
        let authority = &after[..end];
        match authority.rsplit_once('@').and_then(|(user, host)| Some((user.split_once(':')?.0, host))) {
            Some((user, host)) => {
                let _ = write!(out, "{user}:{MASK}@{host}");
            }
            None => out.push_str(authority),
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
#[path = "secrets_test.rs"]
mod tests;
