//! Who may come in. Whoever reaches the receipts API can settle what happened to somebody's money, so
//! either they show a token, or they are a program on this very machine.
//!
//! A *page* in a browser on this machine is not such a program, whatever it claims. On a listener
//! without a token three walls stand against it, each enough for most attacks:
//!
//! * `Host` must be a name of this machine, so a foreign name that was made to resolve to 127.0.0.1 (DNS
//!   rebinding) gets nothing;
//! * `Origin` and `Sec-Fetch-Site`, which pages cannot forge, must not name another page;
//! * every POST must be `application/json` (see `json.rs`), which a browser sends across origins only
//!   after a preflight, and no preflight is ever answered here.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use http::uri::Authority;

use super::problem::Problem;

/// Shortest token: beyond guessing over a network, if it is random.
const TOKEN_CHARS_MIN: usize = 16;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What it takes to come in.
pub enum Door {
    /// The bearer token with this hash. The token itself is not kept.
    Token(blake3::Hash),
    /// To be a program on this machine.
    Loopback,
}

impl Door {
    /// The door of a listener at `address`. Fails, with what to do about it, where anyone could come in.
    pub fn at(address: SocketAddr, token: Option<&str>) -> Result<Self, String> {
        match token {
            Some(token) if token.len() < TOKEN_CHARS_MIN => Err(format!(
                "the admin token has {} characters; at least {TOKEN_CHARS_MIN} random ones are needed, as `openssl rand -hex 32` makes them",
                token.len()
            )),
            Some(token) => Ok(Self::Token(blake3::hash(token.as_bytes()))),
            None if address.ip().to_canonical().is_loopback() => Ok(Self::Loopback),
            None => Err(format!(
                "the admin listener at {address} can be reached from other machines, and there anyone could settle receipts: set ONCEWARD_ADMIN_TOKEN, or listen on 127.0.0.1"
            )),
        }
    }

    /// Whether the receipts API may be used with this request.
    pub(super) fn admits_owner(&self, request: &Request) -> Result<(), Problem> {
        let Self::Token(hash) = self else { return Ok(()) };
        let given = only(request, &AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        match given {
            // Hashes are compared in constant time, and reveal nothing if they were not.
            Some(token) if blake3::hash(token.as_bytes()) == *hash => Ok(()),
            _ => Err(Problem::Unauthorized),
        }
    }

    /// Whether this request comes from somewhere that may talk to this listener at all.
    pub(super) fn admits_page(&self, request: &Request) -> Result<(), Problem> {
        // A page does not know the token, and nothing is sent by a browser on its own.
        let Self::Loopback = self else { return Ok(()) };
        let authority = authority(request).ok_or(Problem::Foreign("it has no usable Host"))?;
        if !is_this_machine(authority.host()) {
            return Err(Problem::Foreign("its Host is not a name of this machine"));
        }
        let mut origins = request.headers().get_all(ORIGIN).iter();
        if let Some(origin) = origins.next() {
            let own = format!("http://{authority}");
            if !origin.as_bytes().eq_ignore_ascii_case(own.as_bytes()) || origins.next().is_some() {
                return Err(Problem::Foreign("its Origin is another page"));
            }
        }
        match request.headers().get(&SEC_FETCH_SITE).map(http::HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => Err(Problem::Foreign("it was made by another page")),
        }
    }
}

/// Whom the request believes to be talking to. HTTP/2 says it in the URI.
fn authority(request: &Request) -> Option<Authority> {
    match (request.uri().authority(), only(request, &HOST)) {
        (Some(authority), None) => Some(authority.clone()),
        (None, Some(host)) => host.parse().ok(),
        (Some(authority), Some(host)) if authority.as_str().eq_ignore_ascii_case(host) => {
            Some(authority.clone())
        }
        _ => None,
    }
    // `http://localhost@elsewhere`: not a thing that a client sends.
    .filter(|authority| !authority.as_str().contains('@'))
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// The value of a field that is there once.
fn only<'a>(request: &'a Request, name: &HeaderName) -> Option<&'a str> {
    let mut values = request.headers().get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
#[path = "door_test.rs"]
mod tests;
