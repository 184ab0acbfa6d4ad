//! A validated check: URLs parsed, scenario names resolved, defaults filled in.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::check::{Check, Effects, KeyForm};
use super::error::{Error, ErrorKind, Result};
use super::http2;
use super::message::Request;
use super::oracle::Oracle;
use super::place::Place;
use super::scenario::{self, Scenario};
use super::tls::Trust;
use super::volley::Version;

/// More at once only measures this machine.
const CLIENTS_MAX: usize = 10_000;
/// More of them only take longer.
const ROUNDS_MAX: usize = 10_000;

/// A check that makes sense.
pub(super) struct Setup {
    pub(super) check: Check,
    pub(super) place: Place,
    pub(super) other: Option<Place>,
    /// All instances, the first one first.
    pub(super) instances: Vec<Place>,
    pub(super) oracle: Oracle,
    /// Another body with which the request is another one.
    pub(super) alt_body: Option<Bytes>,
    /// The same JSON in other bytes.
    pub(super) reordered: Option<Bytes>,
    pub(super) scenarios: Vec<&'static Scenario>,
}

impl Setup {
    pub(super) fn read(check: &Check) -> Result<Self> {
        let trust = Trust::new(check.authorities.clone());
        let parse = |url: &str| Place::parse(url, &trust);
        let place = parse(&check.url)?;
        let also = check.also_urls.iter().map(|url| Ok(parse(url)?.with_host_of(&place)));
        let also = also.collect::<Result<Vec<_>>>()?;
        let other = check.other_url.as_deref().map(parse).transpose()?;
        let effects_place = match &check.effects {
            Effects::Url { url, .. } => Some(parse(url)?),
            _ => None,
        };
        let instances: Vec<Place> = std::iter::once(&place).chain(&also).cloned().collect();
        if !check.own_host {
            let all = instances.iter().chain(&other).chain(&effects_place);
            all.filter(|place| !place.is_own()).try_for_each(refuse)?;
        }
        bounded("--clients", check.clients, 2, CLIENTS_MAX)?;
        bounded("--rounds", check.rounds, 1, ROUNDS_MAX)?;
        bounded("--kills", check.kills, 1, ROUNDS_MAX)?;
        if check.version == Version::Http2 && check.body.len() > http2::BODIES_BYTES_MAX {
            return Err(Error::invalid("over HTTP/2 a body may have 32 KiB at most"));
        }
        sound_fields(check)?;
        let json: Option<Value> = serde_json::from_str(&check.body).ok();
        Ok(Self {
            oracle: Oracle::read(&check.effects, effects_place),
            alt_body: match &check.alt_body {
                Some(body) if *body == check.body => {
                    return Err(Error::invalid("--alt-body must differ from --body"));
                }
                Some(body) => Some(Bytes::from(body.clone())),
                None => json.clone().and_then(|json| altered(&json)).map(Bytes::from),
            },
            reordered: json.and_then(|json| reordered(&json, &check.body)).map(Bytes::from),
            scenarios: scenario::named(&check.scenarios)?,
            check: check.clone(),
            place,
            other,
            instances,
        })
    }

    /// The request under test, still without a key.
    pub(super) fn request(&self) -> Request {
        let has = |name: &str| self.check.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
        if !has("content-type") && serde_json::from_str::<Value>(&self.check.body).is_ok() {
            fields.push(("Content-Type".to_owned(), b"application/json".to_vec()));
        }
        if !has("user-agent") {
            fields.push(("User-Agent".to_owned(), b"onceward-verify".to_vec()));
        }
        let given = self.check.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes()));
        fields.extend(given);
        let request = Request {
            place: self.place.clone(),
            method: self.check.method.clone(),
            fields,
            body: Bytes::from(self.check.body.clone()),
            key: String::new(),
            label: String::new(),
        };
        match &self.check.tenants {
            Some([(name, value), _]) => request.replace(name, value.as_str()),
            None => request,
        }
    }

    /// How a key is written into its field.
    pub(super) fn written(&self, key: &str) -> Vec<u8> {
        match self.check.key_form {
            KeyForm::Quoted => format!("\"{key}\"").into_bytes(),
            KeyForm::Raw => key.as_bytes().to_vec(),
        }
    }

    /// How long a key may stay unavailable, plus a margin for a busy machine.
    pub(super) fn patience(&self) -> Duration {
        self.check.lease.mul_f32(1.5) + Duration::from_secs(1)
    }
}

fn refuse(place: &Place) -> Result<()> {
    Err(Error::new(
        ErrorKind::NotYours,
        format!(
            "{} may be somebody else's, and verifying it costs real effects; if it is yours, say --i-own-this-host",
            place.host()
        ),
    ))
}

fn bounded(name: &str, value: usize, low: usize, high: usize) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} must be from {low} to {high}, not {value}")))
}

/// A field that is not one would only be found out by a server that answers 400 to everything.
fn sound_fields(check: &Check) -> Result<()> {
    let hooks = check.fail_header.iter().chain(&check.fail_after_effect_header).chain(&check.slow_header);
    let hooks = hooks.chain(check.tenants.iter().flatten());
    for (name, value) in check.headers.iter().chain(hooks) {
        let sound = http::HeaderName::from_bytes(name.as_bytes()).is_ok()
            && http::HeaderValue::from_str(value).is_ok();
        if !sound {
            return Err(Error::invalid(format!("`{name}: {value}` is not a header field")));
        }
    }
    if http::HeaderName::from_bytes(check.key_header.as_bytes()).is_err() {
        return Err(Error::invalid(format!("`{}` is not the name of a header field", check.key_header)));
    }
    if http::Method::from_bytes(check.method.as_bytes()).is_err() {
        return Err(Error::invalid(format!("`{}` is not a method", check.method)));
    }
    Ok(())
}

/// The first number or text in it, made another one. A document without any gets a member more.
fn altered(json: &Value) -> Option<String> {
    let mut json = json.clone();
    if !alter(&mut json) {
        json.as_object_mut()?.insert("verify".to_owned(), Value::from(1));
    }
    Some(json.to_string())
}

fn alter(json: &mut Value) -> bool {
    match json {
        Value::Number(number) => match number.as_i64().and_then(|number| number.checked_add(1)) {
            Some(next) => *json = Value::from(next),
            None => return false,
        },
        Value::String(text) => text.push('x'),
        Value::Array(items) => return items.iter_mut().any(alter),
        // Numbers first: another amount is more often valid than another word.
        Value::Object(members) => {
            let is_plain = |value: &&mut Value| value.is_number();
            return members.values_mut().filter(is_plain).any(alter) || members.values_mut().any(alter);
        }
        Value::Null | Value::Bool(_) => return false,
    }
    true
}

/// The same value with its members in another order and other white space; none where it cannot differ.
fn reordered(json: &Value, original: &str) -> Option<String> {
    let compact = |text: &str| text.split_whitespace().collect::<String>();
    let orders = [rewritten(json, true), rewritten(json, false)];
    let [first, _] = &orders;
    let spaced = (json.is_object() && first != original).then(|| first.clone());
    orders.into_iter().find(|text| json.is_object() && compact(text) != compact(original)).or(spaced)
}

fn rewritten(json: &Value, backwards: bool) -> String {
    match json {
        Value::Object(members) => {
            let write = |(name, value): (&String, &Value)| {
                format!("{} : {}", Value::from(name.as_str()), rewritten(value, backwards))
            };
            let mut members: Vec<String> = members.iter().map(write).collect();
            if backwards {
                members.reverse();
            }
            format!("{{ {} }}", members.join(" , "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| rewritten(item, backwards)).collect();
            format!("[ {} ]", items.join(" , "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "setup_test.rs"]
mod tests;
