//! The settings of routes that receive webhooks: who signs, where the secrets are, and whether events are stored first.

use std::fmt;

use http::StatusCode;
use onceward_http::RouteBuilder;
use onceward_http::webhook::{Arrivals, OrderBy, Receiver, Scheme, Signer, StoreFirst, Verifier};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::route_settings::{KeySetting, RouteSettings, ScopeSource};
use crate::proxy::ForwardKey;

/// Whether the sender of an event waits for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcceptSetting {
    Forward,
    StoreFirst,
}

/// How a sender signs.
#[derive(Clone, Copy, Debug)]
pub struct SchemeName(pub Scheme);

impl<'de> Deserialize<'de> for SchemeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// Which events are about the same object.
#[derive(Clone, Debug)]
pub struct OrderSource(pub OrderBy);

impl<'de> Deserialize<'de> for OrderSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// Where a secret is: `env:NAME` or `file:PATH`. The configuration file itself is no place for secrets. It is parsed
/// later: an error of the parser would show the line.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct SecretSource(String);

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretSource")
    }
}

impl SecretSource {
    fn read(&self) -> Result<String, String> {
        let text = match self.0.split_once(':') {
            Some(("env", name)) if !name.is_empty() => {
                std::env::var(name).map_err(|_| format!("the environment variable {name} is not set"))?
            }
            Some(("file", path)) if !path.is_empty() => {
                std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?
            }
            // Without the text: it may be the secret.
            _ => {
                return Err("say where the secret is, as in \"env:STRIPE_SECRET\" or \
                            \"file:/run/secrets/stripe\"; it does not belong in this file"
                    .into());
            }
        };
        let text = text.trim();
        if text.is_empty() {
            return Err("the place that it names is empty".into());
        }
        Ok(text.to_owned())
    }
}

/// Where the scope comes from, unless it is set: who sends a verified event is known by its signature.
pub fn usual_scope(settings: &RouteSettings) -> ScopeSource {
    if settings.verify.is_some() { ScopeSource::Shared } else { ScopeSource::Auto }
}

/// Which key the service gets. The id of an event is not in a field that services take for a key.
pub fn forward_key(settings: &RouteSettings) -> ForwardKey {
    let usual = if settings.verify.is_some() { ForwardKey::Derived } else { ForwardKey::default() };
    settings.forward_key.unwrap_or(usual)
}

/// Applies the settings of webhooks. Returns what signs the deliveries of stored events, too.
pub fn apply(
    route: RouteBuilder,
    preset: &str,
    settings: &RouteSettings,
) -> Result<(RouteBuilder, Option<Signer>), String> {
    let Some(SchemeName(scheme)) = settings.verify else {
        let unused = [
            ("secrets", settings.secrets.is_some()),
            ("tolerance", settings.tolerance.is_some()),
            ("accept", settings.accept.is_some()),
            ("accept_status", settings.accept_status.is_some()),
            ("order_by", settings.order_by.is_some()),
            ("sign_with", settings.sign_with.is_some()),
        ];
        if let Some((name, _)) = unused.iter().find(|(_, set)| *set) {
            return Err(format!("{name}: it has no effect without `verify`"));
        }
        if preset == "webhook" && settings.key_from.is_none() {
            return Err(
                "preset: \"webhook\" needs `verify` and `secrets`, or a `key_from` for a sender without \
                        signatures"
                    .into(),
            );
        }
        return Ok((route, None));
    };
    if preset != "webhook" {
        return Err("verify: it needs preset = \"webhook\"".into());
    }
    if settings.key_from.is_some() {
        return Err("key_from: the key of a verified event is its sender's id; leave this out".into());
    }
    if !matches!(settings.key, None | Some(KeySetting::Required)) {
        return Err("key: every verified event has a key; leave this out".into());
    }
    if settings.fail_open == Some(true) {
        return Err("fail_open: a verified event is never passed on unguarded; leave this out".into());
    }
    let Some(sources) = &settings.secrets else {
        return Err(
            "secrets: they are missing; `verify` needs at least one, as in secrets = [\"env:STRIPE_SECRET\"]"
                .into(),
        );
    };
    let secrets = sources.iter().map(SecretSource::read).collect::<Result<Vec<_>, _>>();
    let secrets = secrets.map_err(|error| format!("secrets: {error}"))?;
    let mut verifier = Verifier::new(scheme, secrets).map_err(|error| format!("secrets: {error}"))?;
    if let Some(tolerance) = settings.tolerance {
        verifier = verifier.with_tolerance(tolerance.0);
    }
    let mut receiver = Receiver::new(verifier);
    let mut signer = None;
    if settings.accept == Some(AcceptSetting::StoreFirst) {
        let (stored, signs) = store_first(settings)?;
        receiver = receiver.with_store_first(stored);
        signer = Some(signs);
    } else if settings.order_by.is_some() || settings.sign_with.is_some() || settings.accept_status.is_some()
    {
        return Err(
            "order_by, sign_with and accept_status have no effect unless accept is \"store-first\"".into()
        );
    }
    Ok((route.with_webhook(receiver), signer))
}

fn store_first(settings: &RouteSettings) -> Result<(StoreFirst, Signer), String> {
    // The gateway that runs replaces these arrivals by its own.
    let mut stored = StoreFirst::new(Arrivals::new());
    if let Some(number) = settings.accept_status {
        let status = StatusCode::from_u16(number)
            .map_err(|_| format!("accept_status: there is no status {number}"))?;
        if !status.is_success() {
            return Err(format!("accept_status: an event is acknowledged with 2xx, not with {status}"));
        }
        stored = stored.with_status(status);
    }
    if let Some(order) = &settings.order_by {
        stored = stored.with_order_by(order.0.clone());
    }
    let Some(source) = &settings.sign_with else {
        return Err(
            "sign_with: it is missing; stored events are delivered under a signature of your own, which the \
                    service verifies, as in sign_with = \"env:DELIVERY_SECRET\""
                .into(),
        );
    };
    let secret = source.read().map_err(|error| format!("sign_with: {error}"))?;
    let signer = Signer::new(&secret).map_err(|error| format!("sign_with: {error}"))?;
    Ok((stored, signer))
}
