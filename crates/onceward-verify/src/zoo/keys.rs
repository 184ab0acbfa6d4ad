//! Services that parse or scope keys wrongly.

use super::careful::{Habits, strict_key};
use super::server::{Ask, Reply};

/// Keys are looked up without their tenant.
pub(super) struct Global;

impl Habits for Global {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {key}", ask.path)
    }
}

/// Keys are looked up without their path.
pub(super) struct Pathless;

impl Habits for Pathless {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {key}", ask.tenant)
    }
}

/// White space around a key is cut off.
pub(super) struct Trimmed;

impl Habits for Trimmed {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {} {}", ask.tenant, ask.path, key.trim())
    }
}

/// The column has a collation that knows no case.
pub(super) struct CaseFolded;

impl Habits for CaseFolded {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {} {}", ask.tenant, ask.path, key.to_lowercase())
    }
}

/// The column has 64 characters and cuts off the rest.
pub(super) struct Truncated;

impl Habits for Truncated {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {} {}", ask.tenant, ask.path, key.chars().take(64).collect::<String>())
    }
}

/// Keys are cut off after 24 characters: those of one client, which differ only at their end, are one.
pub(super) struct Short;

impl Habits for Short {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {} {}", ask.tenant, ask.path, key.chars().take(24).collect::<String>())
    }
}

/// Dashes are taken out, because keys are expected to be UUIDs.
pub(super) struct Dashless;

impl Habits for Dashless {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {} {}", ask.tenant, ask.path, key.replace('-', ""))
    }
}

/// No key is read as the empty key.
pub(super) struct MissingIsEmpty;

impl Habits for MissingIsEmpty {
    fn key(&self, lines: &[Vec<u8>]) -> Result<String, Reply> {
        if lines.is_empty() {
            return Ok(String::new());
        }
        strict_key(lines).ok_or_else(|| Reply::plain(400, "a key is required, and only one"))
    }
}

/// The empty key is a key.
pub(super) struct EmptyIsAKey;

impl Habits for EmptyIsAKey {
    fn key(&self, lines: &[Vec<u8>]) -> Result<String, Reply> {
        if lines == [b"\"\"".to_vec()] {
            return Ok(String::new());
        }
        strict_key(lines).ok_or_else(|| Reply::plain(400, "a key is required, and only one"))
    }
}

/// The column has 255 characters, and nobody asked what the database says to more.
pub(super) struct TooLongFails;

impl Habits for TooLongFails {
    fn key(&self, lines: &[Vec<u8>]) -> Result<String, Reply> {
        if lines.iter().any(|line| line.len() > 257) {
            return Err(Reply::plain(500, "value too long for type character varying(255)"));
        }
        strict_key(lines).ok_or_else(|| Reply::plain(400, "a key is required, and only one"))
    }
}

/// A key that cannot be read is passed over: a key of its own for each request, which protects nothing.
#[derive(Default)]
pub(super) struct MalformedIgnored(std::sync::atomic::AtomicU64);

impl Habits for MalformedIgnored {
    fn key(&self, lines: &[Vec<u8>]) -> Result<String, Reply> {
        let number = || self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(strict_key(lines).unwrap_or_else(|| format!("(none {})", number())))
    }
}

/// Users who are told apart by a cookie share their keys.
pub(super) struct CookieIgnored;

impl Habits for CookieIgnored {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {} {} {key}", ask.credential.split('.').next().unwrap_or_default(), ask.host, ask.path)
    }
}

/// Customers who are told apart by the host that they ask share their keys.
pub(super) struct HostIgnored;

impl Habits for HostIgnored {
    fn id(&self, ask: &Ask, key: &str) -> String {
        let user = ask.credential.split('.').next().unwrap_or_default();
        format!("{user} {} {} {key}", ask.cookie_user, ask.path)
    }
}

/// The whole credential is a part of what is looked up, so that a refreshed one is another client's.
pub(super) struct WholeCredential;

impl Habits for WholeCredential {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {} {} {} {key}", ask.credential, ask.cookie_user, ask.host, ask.path)
    }
}

/// A key belongs to who used it first; everybody else is refused.
pub(super) struct Squatted;

impl Habits for Squatted {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {key}", ask.path)
    }

    fn fingerprint(&self, ask: &Ask) -> String {
        let json: serde_json::Value = serde_json::from_slice(&ask.body).unwrap_or_default();
        format!("{} {json}", ask.tenant)
    }
}
