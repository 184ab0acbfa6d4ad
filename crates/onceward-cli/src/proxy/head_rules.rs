//! What a request's head must be before the gateway looks for its route: one host, one framing, no field that the
//! service could mistake for one of the gateway's.

use std::net::IpAddr;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, TRANSFER_ENCODING,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use onceward_http::ForwardedHost;

use super::fields::{X_FORWARDED_HOST, is_forwarded_field};
use super::path_rules::PathRules;
use super::pool::transfer_coding;
use crate::listener::Networks;

/// Why a request is refused, with its status.
pub type Refused = (StatusCode, &'static str);

/// The target to forward, where it differs from the one that routes and the layer see.
#[derive(Clone, Debug)]
pub struct ForwardedPath(pub PathAndQuery);

/// What happens to request fields with `_` in their names. CGI, WSGI and their like write `_` and `-` as one variable, so that
/// a service would read them as another field.
#[derive(Clone, Copy, Debug)]
pub enum UnderscoreFields<'r> {
    Removed,
    /// They pass, except those that look like a field that the gateway or one of its routes reads, or like another field of
    /// the request.
    PassedUnlessRead(&'r [HeaderName]),
}

/// Checks the head of a request, and removes what has no meaning or a dangerous one. `trusted`: the client is a proxy
/// whose word about the client behind it counts.
pub fn check<B>(
    request: &mut Request<B>,
    rules: PathRules,
    underscores: UnderscoreFields<'_>,
    trusted: bool,
) -> Result<(), Refused> {
    let bad = |why| (StatusCode::BAD_REQUEST, why);
    rules.check_method(request.method()).map_err(bad)?;
    check_host(request).map_err(bad)?;
    if transfer_coding(request.headers()) == Some(false) {
        return Err((StatusCode::NOT_IMPLEMENTED, "a transfer coding other than chunked is not supported"));
    }
    let headers = request.headers_mut();
    remove_look_alikes(headers, underscores);
    let mut forwarded_host = None;
    if trusted {
        forwarded_host = read_forwarded_host(headers);
    } else {
        remove_forwarded(headers);
    }
    join_cookies(headers);
    request.extensions_mut().remove::<ForwardedHost>();
    if let Some(host) = forwarded_host {
        request.extensions_mut().insert(host);
    }
    rule_path(request, rules)
}

/// The host that the client of a trusted proxy asked for: the first one, if several proxies have added theirs.
fn read_forwarded_host(headers: &HeaderMap) -> Option<ForwardedHost> {
    let first = headers.get(X_FORWARDED_HOST)?.to_str().ok()?.split(',').next()?.trim();
    (!first.contains('@') && is_authority(first)).then(|| ForwardedHost(first.to_owned()))
}

/// RFC 9112, section 3.2: exactly one host, and no credentials in it.
fn check_host<B>(request: &Request<B>) -> Result<(), &'static str> {
    let mut lines = request.headers().get_all(HOST).iter();
    let (first, second) = (lines.next(), lines.next());
    if second.is_some() {
        return Err("the request has more than one Host field");
    }
    let authority = request.uri().authority();
    if first.is_none() && authority.is_none() && request.version() == Version::HTTP_11 {
        return Err("the request has no Host field");
    }
    let is_host = |value: &HeaderValue| {
        value.is_empty() || value.to_str().is_ok_and(|host| !host.contains('@') && is_authority(host))
    };
    if first.is_some_and(|value| !is_host(value)) {
        return Err("the Host field is not a host");
    }
    if authority.is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("the target contains credentials");
    }
    Ok(())
}

fn is_authority(host: &str) -> bool {
    host.parse::<http::uri::Authority>().is_ok()
}

fn remove_look_alikes(headers: &mut HeaderMap, underscores: UnderscoreFields<'_>) {
    if !headers.keys().any(|name| name.as_str().contains('_')) {
        return;
    }
    let is_removed = |name: &HeaderName| {
        let UnderscoreFields::PassedUnlessRead(by_routes) = underscores else { return true };
        let Ok(folded) = HeaderName::try_from(name.as_str().replace('_', "-")) else { return true };
        is_ours(&folded)
            || is_forwarded_field(&folded)
            || READ_BY_THE_GATEWAY.contains(&folded)
            || READ_BY_THE_LAYER.contains(&folded.as_str())
            || by_routes.iter().any(|read| read.as_str().replace('_', "-") == folded.as_str())
            || headers.contains_key(&folded)
    };
    let look_alikes: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().contains('_') && is_removed(name)).cloned().collect();
    for name in look_alikes {
        headers.remove(name);
    }
}

const READ_BY_THE_GATEWAY: [HeaderName; 7] =
    [AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, TRANSFER_ENCODING];

/// What tells callers and requests apart, and what decides whether a request is carried out.
const READ_BY_THE_LAYER: [&str; 12] = [
    "api-key",
    "content-encoding",
    "expect",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "origin",
    "proxy-authorization",
    "signature-input",
    "x-api-key",
    "x-http-method-override",
    "x-request-id",
];

fn is_ours(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("onceward-") || name.starts_with("idempotency-") || name.starts_with("idempotent-")
}

fn remove_forwarded(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_forwarded_field(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// RFC 9113, section 8.2.3: an HTTP/2 client may split its cookies, and a service gets them as one field.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// Applies the rules about paths, and replaces the target by the path that is compared.
fn rule_path<B>(request: &mut Request<B>, rules: PathRules) -> Result<(), Refused> {
    let bad = |why| (StatusCode::BAD_REQUEST, why);
    // `OPTIONS *` asks about the server as a whole.
    if request.uri().path() == "*" {
        let allowed = request.method() == Method::OPTIONS;
        return if allowed { Ok(()) } else { Err(bad("only OPTIONS may have the target `*`")) };
    }
    let path = rules.apply(request.uri().path()).map_err(bad)?;
    if path.forwarded == request.uri().path() && path.compared == request.uri().path() {
        return Ok(());
    }
    let target = |path: &str| match request.uri().query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    let wrong = |_| bad("the path is not valid");
    let forwarded = target(&path.forwarded).map_err(wrong)?;
    let compared = target(&path.compared).map_err(wrong)?;
    let differs = path.forwarded != path.compared;
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(compared);
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| bad("the target is not valid"))?;
    if differs {
        request.extensions_mut().insert(ForwardedPath(forwarded));
    }
    Ok(())
}

/// The client that limits per address count: behind a trusted proxy, the last address that it did not itself add.
pub fn client_address(headers: &HeaderMap, peer: IpAddr, trusted: &Networks) -> Option<IpAddr> {
    if !trusted.contains(peer) {
        return Some(peer);
    }
    let lines: Vec<_> =
        headers.get_all("x-forwarded-for").iter().filter_map(|line| line.to_str().ok()).collect();
    let hops = lines.iter().rev().flat_map(|line| line.rsplit(',')).map_while(|hop| hop.trim().parse().ok());
    let mut hops = hops.skip_while(|hop: &IpAddr| trusted.contains(*hop));
    hops.next()
}

#[cfg(test)]
#[path = "head_rules_test.rs"]
mod tests;
