//! Who may use the receipts API. A client that reaches it can settle what happened to a payment, so it must either
//! send a token or be a program on this machine.
//!
//! A *page* in a browser on this machine is not such a program. Without a token three checks keep it out, each of
//! them enough for most attacks:
//!
//! * `Host` must be a name of this machine, so a foreign name that was made to resolve to 127.0.0.1 (DNS
//!   rebinding) gets nothing;
//! * `Origin` and `Sec-Fetch-Site`, which pages cannot forge, must not name another page;
//! * every POST must be `application/json` (see `json.rs`), which a browser sends across origins only
//!   after a preflight, and no preflight is ever answered here.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use http::header::{AUTHORIZATION, HOST, HeaderName, ORIGIN};
use http::uri::Authority;
use onceward::{Error, ErrorKind, Result};

use super::problem::Problem;

/// Shortest token: beyond guessing over a network, if it is random.
const TOKEN_CHARS_MIN: usize = 16;

/// What proxies add to a request that they forward.
const FORWARDED_BY_PROXIES: [&str; 3] = ["forwarded", "x-forwarded-for", "x-real-ip"];

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The credentials for the receipts API.
pub struct AdminAuth(AuthRule);

enum AuthRule {
    /// The bearer tokens of applications and of operators, as hashes. The tokens themselves are not kept.
    Tokens { application: blake3::Hash, operator: blake3::Hash },
    /// A listener that only this machine can reach.
    LoopbackListener,
    /// A connection from this machine, on a listener that others may reach.
    LoopbackPeer,
}

/// What a client does with receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Claims intents around its own code: claim, renew, complete, release.
    Application,
    /// Decides about receipts, and reads all of them: settle, erase, list.
    Operator,
}

impl AdminAuth {
    /// `Authorization: Bearer TOKEN`, the same token for applications and for operators. Fails if it is too short to be
    /// beyond guessing.
    pub fn token(token: &str) -> Result<Self> {
        let hash = token_hash("the admin token", token)?;
        Ok(Self(AuthRule::Tokens { application: hash, operator: hash }))
    }

    /// Two tokens: one for applications, which claim, renew, complete and release; one for operators, which settle,
    /// list, erase and everything else. Neither opens what is for the other. Fails if one is too short to be beyond
    /// guessing, or if they are the same.
    pub fn tokens(application: &str, operator: &str) -> Result<Self> {
        let rule = AuthRule::Tokens {
            application: token_hash("the application token", application)?,
            operator: token_hash("the admin token", operator)?,
        };
        if application == operator {
            let detail = "the application token and the admin token are the same; an application could then settle and erase receipts";
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        Ok(Self(rule))
    }

    /// A listener at `address` that only this machine can reach. Fails if other machines can reach it.
    pub fn loopback_listener(address: SocketAddr) -> Result<Self> {
        if !address.ip().to_canonical().is_loopback() {
            let detail = format!(
                "the admin listener at {address} can be reached from other machines, and there anyone could settle receipts: set an admin token, or listen on 127.0.0.1"
            );
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        Ok(Self(AuthRule::LoopbackListener))
    }

    /// Connections from this machine, on any listener. The service must say where a connection comes from, with
    /// axum's `into_make_service_with_connect_info::<SocketAddr>()`; without that, everything is refused. So is
    /// what a proxy has forwarded: behind a proxy on this machine every connection comes from this machine.
    pub fn loopback_peers() -> Self {
        Self(AuthRule::LoopbackPeer)
    }

    /// Whether this request carries the token, if one is needed.
    pub(super) fn check_token(&self, role: Role, request: &Request) -> Result<(), Problem> {
        let AuthRule::Tokens { application, operator } = &self.0 else { return Ok(()) };
        let (own, other, whose) = match role {
            Role::Application => (application, operator, "applications"),
            Role::Operator => (operator, application, "operators"),
        };
        let given = only(request, &AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        // Hashes are compared in constant time, and reveal nothing if they were not.
        match given.map(|token| blake3::hash(token.as_bytes())) {
            Some(given) if given == *own => Ok(()),
            Some(given) if given == *other => Err(Problem::WrongToken(whose)),
            _ => Err(Problem::Unauthorized),
        }
    }

    /// Whether this request comes from a program on this machine, if it must.
    pub(super) fn check_origin(&self, request: &Request) -> Result<(), Problem> {
        match self.0 {
            // A page does not know the token, and a browser does not send it on its own.
            AuthRule::Tokens { .. } => return Ok(()),
            AuthRule::LoopbackListener => {}
            AuthRule::LoopbackPeer => check_peer(request)?,
        }
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

fn token_hash(name: &str, token: &str) -> Result<blake3::Hash> {
    if token.len() < TOKEN_CHARS_MIN {
        let detail = format!(
            "{name} has {} characters; at least {TOKEN_CHARS_MIN} random ones are needed, as `openssl rand -hex 32` makes them",
            token.len()
        );
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    Ok(blake3::hash(token.as_bytes()))
}

/// Whether the connection comes from this machine, and the request was not forwarded by a proxy.
fn check_peer(request: &Request) -> Result<(), Problem> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let Some(ConnectInfo(peer)) = peer else {
        return Err(Problem::Foreign("the service does not say where it comes from"));
    };
    if !peer.ip().to_canonical().is_loopback() {
        return Err(Problem::Foreign("it comes from another machine"));
    }
    if FORWARDED_BY_PROXIES.iter().any(|name| request.headers().contains_key(*name)) {
        return Err(Problem::Foreign("a proxy has forwarded it"));
    }
    Ok(())
}

/// The host that the request is for. HTTP/2 names it in the URI.
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

impl fmt::Debug for AdminAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            AuthRule::Tokens { .. } => "AdminAuth::Tokens",
            AuthRule::LoopbackListener => "AdminAuth::LoopbackListener",
            AuthRule::LoopbackPeer => "AdminAuth::LoopbackPeer",
        })
    }
}

#[cfg(test)]
#[path = "auth_test.rs"]
mod tests;
