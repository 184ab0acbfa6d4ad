//! Parses addresses: where to listen, and the URLs of services.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use clap::builder::{StringValueParser, TypedValueParser};
use serde::de::{Deserialize, Deserializer, Error as _};

/// An address to listen on: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, or `:8080` for all interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub SocketAddr);

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        let named = text.rsplit_once(':').and_then(|(host, port)| {
            let host = match host {
                "" => Ipv4Addr::UNSPECIFIED,
                host if host.eq_ignore_ascii_case("localhost") => Ipv4Addr::LOCALHOST,
                _ => return None,
            };
            // `parse` would accept a sign too.
            is_port(port).then(|| port.parse().ok()).flatten().map(|port| (host, port))
        });
        let (host, port) = named.ok_or_else(|| {
            format!(
                "`{text}` is not an address to listen on; write an IP address and a port (`127.0.0.1:8080`, \
                 `[::1]:8080`), `localhost:8080` for this machine only, or `:8080` for all interfaces"
            )
        })?;
        Ok(Self(SocketAddr::new(IpAddr::V4(host), port)))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A URL, where `localhost:3000/path` and `:3000/path` are short for `http://…`, the latter on this machine.
/// Anything else is returned unchanged.
pub fn with_scheme(url: &str) -> Cow<'_, str> {
    let authority = url.split(['/', '?', '#']).next().unwrap_or(url);
    match authority.rsplit_once(':') {
        Some(("", port)) if is_port(port) => format!("http://127.0.0.1{url}").into(),
        Some((_, port)) if is_port(port) => format!("http://{url}").into(),
        _ => url.into(),
    }
}

/// A parser of arguments that applies [`with_scheme`].
pub fn url() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().map(|text| with_scheme(&text).into_owned())
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
#[path = "address_test.rs"]
mod tests;
