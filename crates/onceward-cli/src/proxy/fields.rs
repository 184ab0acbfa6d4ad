//! Header fields on their way through the gateway: what belongs to one hop ends here, and the service
//! behind is told where the request came from.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use onceward_http::headers::{ONCEWARD_ATTEMPT, ONCEWARD_FENCE};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields that speak of one connection only (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What the client said about where it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardedRule {
    /// Kept, and this hop added. For a gateway behind another proxy.
    #[default]
    Append,
    /// Thrown away. For a gateway that clients reach directly.
    Replace,
}

/// Where a request entered.
#[derive(Clone, Copy, Debug)]
pub struct ClientConnection {
    /// The address of the client.
    pub client: IpAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
}

/// Takes out what belongs to the hop it came over, in either direction.
pub fn end_hop(headers: &mut HeaderMap) {
    // What `Connection` lists is hop-by-hop too. `Content-Length` and `Host` are not the sender's to
    // list: taking them out would let a client change how the next hop reads the request.
    if headers.contains_key(CONNECTION) {
        let listed: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            .filter(|name| !KEPT_ANYWAY.contains(name))
            .collect();
        for name in listed {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// End-to-end by nature. A `Connection` field that lists them is a mistake or an attack.
const KEPT_ANYWAY: [HeaderName; 5] = [
    CONTENT_LENGTH,
    HOST,
    http::header::AUTHORIZATION,
    http::header::CONTENT_TYPE,
    onceward_http::headers::IDEMPOTENCY_KEY,
];

/// Whether the sender asks for another protocol on this connection, and for which.
pub fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("upgrade"));
    asked.then(|| headers.get(UPGRADE).cloned()).flatten()
}

/// Asks the next hop for the protocol that this one was asked for.
pub fn ask_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Tells the service where the request came from, and makes sure that what only the gateway may say is
/// said by the gateway.
pub fn enter(headers: &mut HeaderMap, arrival: ClientConnection, rule: ForwardedRule) {
    headers.remove(ONCEWARD_FENCE);
    headers.remove(ONCEWARD_ATTEMPT);
    if rule == ForwardedRule::Replace {
        for name in [X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, FORWARDED] {
            headers.remove(name);
        }
    }
    let client = arrival.client.to_string();
    let host = headers.get(HOST).cloned();
    let hop = forwarded(arrival, host.as_ref());
    add_to_list(headers, X_FORWARDED_FOR, &client);
    add_to_list(headers, FORWARDED, &hop);
    // The first proxy knows best what the client asked for.
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(arrival.scheme));
    if let Some(host) = host {
        headers.entry(X_FORWARDED_HOST).or_insert(host);
    }
}

/// One element of `Forwarded` (RFC 7239).
fn forwarded(arrival: ClientConnection, host: Option<&HeaderValue>) -> String {
    let mut element = match arrival.client {
        IpAddr::V4(address) => format!("for={address}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\""),
    };
    // A host that would need escapes is no host.
    let plain =
        |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte));
    if let Some(host) = host.and_then(|host| host.to_str().ok()).filter(plain) {
        element.push_str(";host=\"");
        element.push_str(host);
        element.push('"');
    }
    element.push_str(";proto=");
    element.push_str(arrival.scheme);
    element
}

/// Adds to a field that is a list, as one line: readers of several lines take the wrong one.
fn add_to_list(headers: &mut HeaderMap, name: HeaderName, element: &str) {
    let mut list = Vec::with_capacity(element.len());
    for line in headers.get_all(&name) {
        list.extend_from_slice(line.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
#[path = "fields_test.rs"]
mod tests;
