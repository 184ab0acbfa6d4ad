//! Rewrites header fields between client and upstream: removes hop-by-hop fields, and adds the forwarded fields that
//! tell the service where a request came from.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use onceward_http::headers::{IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED, ONCEWARD_ATTEMPT, ONCEWARD_FENCE};

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Fields that apply to one connection only (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    HTTP2_SETTINGS,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The connection that a request arrived on.
#[derive(Clone, Copy, Debug)]
pub struct ClientConnection {
    /// The address of the client.
    pub client: IpAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Whether the client is a proxy whose forwarded fields are believed.
    pub trusted: bool,
}

/// Returns whether a field says where a request came from. Only proxies set them.
pub fn is_forwarded_field(name: &HeaderName) -> bool {
    name == FORWARDED || name == X_REAL_IP || name.as_str().starts_with("x-forwarded-")
}

/// Removes hop-by-hop fields, from requests and responses.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    // What `Connection` lists is hop-by-hop too. Some fields are kept even if
    // it lists them: removing them would let a client change how the next hop reads the request.
    if headers.contains_key(CONNECTION) {
        let listed: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            .filter(|name| !NEVER_REMOVED.contains(name))
            .collect();
        for name in listed {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Removes the fields of the protocol from a service's response: they would say what only the gateway can know, also of
/// a request without a key.
pub fn remove_protocol_fields(headers: &mut HeaderMap) {
    for name in [IDEMPOTENCY_EXPIRES, IDEMPOTENT_REPLAYED] {
        headers.remove(name);
    }
    if headers.keys().any(|name| name.as_str().starts_with("onceward-")) {
        let ours = headers.keys().filter(|name| name.as_str().starts_with("onceward-"));
        for name in ours.cloned().collect::<Vec<_>>() {
            headers.remove(name);
        }
    }
}

/// End-to-end fields. A `Connection` field that lists one of them is a mistake or an attack.
const NEVER_REMOVED: [HeaderName; 5] = [
    CONTENT_LENGTH,
    HOST,
    http::header::AUTHORIZATION,
    http::header::CONTENT_TYPE,
    onceward_http::headers::IDEMPOTENCY_KEY,
];

/// The upgrade that the sender asks for, if the gateway passes it. Any other one would open a tunnel past the guard: over
/// `h2c` a client could send requests that nobody looks at.
pub fn requested_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("upgrade"));
    let protocol =
        headers.get(UPGRADE).filter(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"));
    asked.then(|| protocol.cloned()).flatten()
}

/// Requests the same upgrade from the next hop.
pub fn add_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Adds the forwarded fields, and removes fields that only the gateway may set. Those of an untrusted client have been
/// removed before.
pub fn add_forwarded(headers: &mut HeaderMap, connection: ClientConnection) {
    headers.remove(ONCEWARD_FENCE);
    headers.remove(ONCEWARD_ATTEMPT);
    let client = connection.client.to_string();
    let host = headers.get(HOST).cloned();
    let hop = forwarded(connection, host.as_ref());
    add_to_list(headers, X_FORWARDED_FOR, &client);
    add_to_list(headers, FORWARDED, &hop);
    // The first proxy saw the scheme and the host that the client used.
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(connection.scheme));
    if let Some(host) = host {
        headers.entry(X_FORWARDED_HOST).or_insert(host);
    }
}

/// One element of `Forwarded` (RFC 7239).
fn forwarded(connection: ClientConnection, host: Option<&HeaderValue>) -> String {
    let mut element = match connection.client {
        IpAddr::V4(address) => format!("for={address}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\""),
    };
    // A host that would need escapes is not valid.
    let plain =
        |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte));
    if let Some(host) = host.and_then(|host| host.to_str().ok()).filter(plain) {
        element.push_str(";host=\"");
        element.push_str(host);
        element.push('"');
    }
    element.push_str(";proto=");
    element.push_str(connection.scheme);
    element
}

/// Appends to a list field, and joins it into one line: some services read only one of several lines.
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
