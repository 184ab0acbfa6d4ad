//! A validated check: URLs parsed, scenario names resolved, defaults filled in.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::check::{Check, Effects};
use super::error::{Error, ErrorKind, Result};
use super::http2;
use super::message::Request;
use super::oracle::Oracle;
use super::place::Place;
use super::scenario::{self, Scenario};
use super::tls::Trust;
use super::volley::HttpVersion;

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
    /// The body that has the effect, without a key.
    pub(super) body: Bytes,
    /// Another body with which the request is another one.
    pub(super) alt_body: Option<Bytes>,
    /// The same JSON in other bytes.
    pub(super) reordered: Option<Bytes>,
    pub(super) scenarios: Vec<&'static Scenario>,
    /// Where what is started listens.
    pub(super) started: Place,
    /// A resource with a version.
    pub(super) versioned: Option<Place>,
    /// Where signed events go.
    pub(super) webhook: Option<Place>,
}

impl Setup {
    pub(super) fn read(check: &Check) -> Result<Self> {
        let trust = Trust::new(check.authorities.clone());
        let parse = |url: &str| Place::parse(url, &trust);
        let mut place = parse(&check.url)?;
        if let Some(name) = &check.key_parameter {
            place = place.with_parameter(name, None);
            if check.key_pointer.is_some() {
                return Err(Error::invalid("a key is in --key-pointer or in --key-parameter, not in both"));
            }
        }
        let also = check.also_urls.iter().map(|url| Ok(parse(url)?.with_host_of(&place)));
        let also = also.collect::<Result<Vec<_>>>()?;
        let other = check.other_url.as_deref().map(parse).transpose()?;
        let more = [&check.start_url, &check.versioned_url].into_iter().flatten();
        let more = more.chain(check.webhook.as_ref().map(|webhook| &webhook.url));
        let more = more.map(|url| parse(url)).collect::<Result<Vec<_>>>()?;
        let effects_place = match &check.effects {
            Effects::Url { url, .. } => Some(parse(url)?),
            _ => None,
        };
        let instances: Vec<Place> = std::iter::once(&place).chain(&also).cloned().collect();
        if !check.own_host {
            let all = instances.iter().chain(&other).chain(&effects_place).chain(&more);
            all.filter(|place| !place.is_own()).try_for_each(refuse)?;
        }
        bounded("--clients", check.clients, 2, CLIENTS_MAX)?;
        bounded("--rounds", check.rounds, 1, ROUNDS_MAX)?;
        bounded("--kills", check.kills, 1, ROUNDS_MAX)?;
        if check.version == HttpVersion::Http2 && check.body.len() > http2::BODIES_BYTES_MAX {
            return Err(Error::invalid("over HTTP/2 a body may have 32 KiB at most"));
        }
        sound_fields(check)?;
        let keyless = |body: &Bytes| without_member(body, check.key_pointer.as_deref());
        let body = keyless(&check.body);
        let json: Option<Value> = serde_json::from_slice(&body).ok();
        if let Some(pointer) = &check.key_pointer
            && with_value(json.as_ref(), pointer, "").is_none()
        {
            return Err(Error::invalid(format!("--key-pointer {pointer}: --body has no object there")));
        }
        Ok(Self {
            oracle: Oracle::read(&check.effects, effects_place)?,
            alt_body: match check.alt_body.as_ref().map(keyless) {
                Some(other) if other == body => {
                    return Err(Error::invalid("--alt-body must differ from --body"));
                }
                Some(other) => Some(other),
                None => json.clone().and_then(|json| altered(&json)).map(Bytes::from),
            },
            // Where the key is in the body, that is written again for each key.
            reordered: json
                .filter(|_| check.key_pointer.is_none())
                .and_then(|json| reordered(&json, &String::from_utf8_lossy(&body)))
                .map(Bytes::from),
            started: check.start_url.as_deref().map_or_else(|| Ok(place.clone()), parse)?,
            versioned: check.versioned_url.as_deref().map(parse).transpose()?,
            webhook: check.webhook.as_ref().map(|webhook| parse(&webhook.url)).transpose()?,
            scenarios: scenario::named(&check.scenarios)?,
            check: check.clone(),
            body,
            place,
            other,
            instances,
        })
    }

    /// The request under test, still without a key.
    pub(super) fn request(&self) -> Request {
        let has = |name: &str| self.check.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
        if !has("content-type") && serde_json::from_slice::<Value>(&self.check.body).is_ok() {
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
            body: self.body.clone(),
            key: String::new(),
            label: String::new(),
        };
        let firsts = self.check.tenants.iter().map(|[first, _]| first);
        firsts.fold(request, |request, (name, value)| request.replace(name, value.as_str()))
    }

    /// Rounds that a race is run against a slow request, too: one, where it is said what makes a request slow.
    pub(super) fn slow_rounds(&self) -> usize {
        usize::from(self.check.slow_header.is_some())
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
            "{} may belong to others, and verifying it costs real effects; if it is yours, say --i-own-this-host",
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
    let hooks = check.fail_headers.iter().chain(&check.fail_after_effect_headers).chain(&check.slow_header);
    let hooks =
        hooks.chain(check.tenants.iter().flatten()).chain(&check.refreshed).chain(&check.fresh_fields);
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

/// This JSON with this value at a pointer. The object that it belongs in must be there, the member need not.
pub(super) fn with_value(json: Option<&Value>, pointer: &str, value: impl Into<Value>) -> Option<Value> {
    let mut json = json?.clone();
    let (parent, name) = pointer.rsplit_once('/')?;
    let name = name.replace("~1", "/").replace("~0", "~");
    json.pointer_mut(parent)?.as_object_mut()?.insert(name, value.into());
    Some(json)
}

/// A body without the member at this pointer, if it is JSON and has it.
fn without_member(body: &Bytes, pointer: Option<&str>) -> Bytes {
    let without = || {
        let mut json: Value = serde_json::from_slice(body).ok()?;
        let (parent, name) = pointer?.rsplit_once('/')?;
        let name = name.replace("~1", "/").replace("~0", "~");
        json.pointer_mut(parent)?.as_object_mut()?.remove(&name)?;
        Some(Bytes::from(json.to_string()))
    };
    without().unwrap_or_else(|| body.clone())
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
