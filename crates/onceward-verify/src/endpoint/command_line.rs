//! The command line that repeats one scenario of a check. Secrets are not in it: it names shell variables instead.

use std::fmt::Write;

use bytes::Bytes;

use super::check::{Check, Effects, KeyNotation, written};
use super::secrets::is_credential;
use super::volley::HttpVersion;

impl Check {
    /// The command line that does one scenario of this again.
    pub fn command_line(&self, scenario: &str) -> String {
        let standard = Self::new("");
        let mut line = CommandLine(String::from("onceward verify"));
        line.option("url", &self.url);
        line.unless(self.method == standard.method, "method", &self.method);
        line.unless(self.body == standard.body, "body", &printed_body(&self.body, "BODY"));
        self.headers.iter().for_each(|field| line.field("header", field, ""));
        self.fresh_fields.iter().for_each(|field| line.field("fresh-header", field, ""));
        line.unless(self.key_header == standard.key_header, "key-header", &self.key_header);
        line.given("key-pointer", self.key_pointer.as_ref());
        line.given("key-parameter", self.key_parameter.as_ref());
        line.flag(self.key_notation == KeyNotation::Raw, "raw-key");
        line.flag(self.version == HttpVersion::Http2, "http2");
        line.given("ca", self.authorities.as_ref().map(|path| path.display().to_string()).as_ref());
        line.unless(self.clients == standard.clients, "clients", &self.clients.to_string());
        line.unless(self.rounds == standard.rounds, "rounds", &self.rounds.to_string());
        line.unless(self.kills == standard.kills, "kills", &self.kills.to_string());
        match &self.effects {
            Effects::Unseen => {}
            Effects::Url { url, pointer } => {
                line.option("effects-url", url);
                line.unless(pointer.is_empty(), "effects-pointer", pointer);
            }
            Effects::Command(command) => line.option("effects-cmd", command),
            Effects::Sql { url, query } => {
                line.option("effects-sql", url);
                let _ = write!(line.0, " {}", quote(query));
            }
        }
        line.given("alt-body", self.alt_body.as_ref().map(|body| printed_body(body, "ALT_BODY")).as_ref());
        for [one, other] in &self.tenants {
            let _ = write!(line.0, " --tenant-header {} {}", printed(one, "_A"), printed(other, "_B"));
        }
        self.refreshed.iter().for_each(|field| line.field("refreshed-header", field, "_NEW"));
        line.given("other-url", self.other_url.as_ref());
        self.also_urls.iter().for_each(|url| line.option("also-url", url));
        line.given("start-cmd", self.start_command.as_ref());
        line.given("start-url", self.start_url.as_ref());
        line.given("ready-cmd", self.ready_command.as_ref());
        line.given("versioned-url", self.versioned_url.as_ref());
        let versioned = self.versioned_body.as_ref().map(|body| printed_body(body, "VERSIONED_BODY"));
        line.given("versioned-body", versioned.as_ref());
        if let Some(webhook) = &self.webhook {
            line.option("webhook-url", &webhook.url);
            line.option("webhook-scheme", webhook.scheme.name());
            line.option("webhook-secret-env", "WEBHOOK_SECRET");
            line.unless(
                webhook.body.is_empty(),
                "webhook-body",
                &printed_body(&webhook.body, "WEBHOOK_BODY"),
            );
            line.unless(webhook.id_pointer == "/id", "webhook-id-pointer", &webhook.id_pointer);
            let is_usual = webhook.event_name == webhook.scheme.event_name();
            line.unless(is_usual, "webhook-event", &webhook.event_name);
        }
        self.fail_headers.iter().for_each(|field| line.field("fail-header", field, ""));
        self.fail_after_effect_headers
            .iter()
            .for_each(|field| line.field("fail-after-effect-header", field, ""));
        self.slow_header.iter().for_each(|field| line.field("slow-header", field, ""));
        line.unless(self.lease == standard.lease, "lease", &written(self.lease));
        line.given("retention", self.retention.map(written).as_ref());
        line.flag(self.failures_are_final, "failures-are-final");
        self.volatile_fields.iter().for_each(|name| line.option("volatile-field", name));
        let patterns = [
            ("not-now", &self.not_now),
            ("refused", &self.refused),
            ("failed", &self.failed),
            ("held", &self.held),
        ];
        for (name, patterns) in patterns {
            for pattern in patterns {
                line.option(name, &pattern.to_string());
            }
        }
        line.unless(self.timeout == standard.timeout, "timeout", &written(self.timeout));
        line.flag(self.own_host, "i-own-this-host");
        line.option("scenario", scenario);
        line.option("seed", &self.seed.to_string());
        let mut line = line.0;
        super::secrets::Secrets::of(self).conceal(&mut line);
        line
    }
}

/// A body as text, or the name of a file where it is none.
fn printed_body(body: &Bytes, file: &str) -> String {
    std::str::from_utf8(body).map_or_else(|_| format!("@{file}"), str::to_owned)
}

/// A header field for a command line: instead of the value of a credential a shell variable, named by the field.
fn printed((name, value): &(String, String), suffix: &str) -> String {
    if !is_credential(name) {
        return quote(&format!("{name}: {value}"));
    }
    let variable: String = name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' })
        .collect();
    format!("\"{name}: ${variable}{suffix}\"")
}

/// Builds a command line.
struct CommandLine(String);

impl CommandLine {
    fn option(&mut self, name: &str, value: &str) {
        let _ = write!(self.0, " --{name} {}", quote(value));
    }

    fn field(&mut self, name: &str, field: &(String, String), suffix: &str) {
        let _ = write!(self.0, " --{name} {}", printed(field, suffix));
    }

    fn unless(&mut self, standard: bool, name: &str, value: &str) {
        if !standard {
            self.option(name, value);
        }
    }

    fn given(&mut self, name: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.option(name, value);
        }
    }

    fn flag(&mut self, is_set: bool, name: &str) {
        if is_set {
            let _ = write!(self.0, " --{name}");
        }
    }
}

/// For a shell.
pub(crate) fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
