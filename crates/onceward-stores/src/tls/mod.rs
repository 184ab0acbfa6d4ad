//! TLS to databases: what an address says about it, and the rustls configuration that follows.
//!
//! The parameters are those of PostgreSQL's own clients, for every database: `sslmode`, `sslrootcert`, `sslcert`,
//! `sslkey`.

#![cfg_attr(not(feature = "tls"), allow(dead_code, reason = "an address without TLS needs little of it"))]

#[cfg(feature = "tls")]
mod rustls_config;

use std::net::IpAddr;
use std::path::PathBuf;

use onceward::{Error, ErrorKind, Result};

pub(crate) use crate::kit::percent::decoded;

/// How far a connection must be protected. In this order, each protects more than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SslMode {
    /// Never.
    Disable,
    /// Encrypted if the server can.
    Prefer,
    /// Encrypted; the server is not checked, unless `sslrootcert` is given.
    Require,
    /// The certificate must come from a trusted authority, whatever name it has.
    VerifyCa,
    /// The certificate must come from a trusted authority, and be about this host.
    VerifyFull,
}

const MODES: [(&str, SslMode); 5] = [
    ("disable", SslMode::Disable),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

/// What an address says about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) mode: Option<SslMode>,
    /// Trusted authorities; without it, those of the system.
    pub(crate) root_cert: Option<PathBuf>,
    /// The certificate of this client, and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

impl TlsSettings {
    /// Splits an address into what it says about TLS, and the rest of it. Only the form with `://` is understood; in
    /// any other nothing is found.
    pub(crate) fn take(url: &str) -> Result<(String, Self)> {
        let Some((place, query)) = url.split_once('?').filter(|(place, _)| place.contains("://")) else {
            return Ok((url.to_owned(), Self::default()));
        };
        let (mut settings, mut cert, mut key, mut rest) = (Self::default(), None, None, Vec::new());
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "sslmode" => settings.mode = Some(mode(value)?),
                "sslrootcert" => settings.root_cert = Some(decoded(value).into()),
                "sslcert" => cert = Some(PathBuf::from(decoded(value))),
                "sslkey" => key = Some(PathBuf::from(decoded(value))),
                _ => rest.push(parameter),
            }
        }
        settings.client = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(invalid("`sslcert` and `sslkey` belong together; give both")),
        };
        let separator = if rest.is_empty() { "" } else { "?" };
        Ok((format!("{place}{separator}{}", rest.join("&")), settings))
    }

    /// The mode, if it can be used in this build.
    pub(crate) fn usable_mode(&self, default: SslMode) -> Result<SslMode> {
        let mode = self.mode.unwrap_or(default);
        if mode >= SslMode::Require && cfg!(not(feature = "tls")) {
            return Err(invalid("this build has no TLS to databases; build it with the cargo feature `tls`"));
        }
        Ok(mode)
    }
}

fn mode(name: &str) -> Result<SslMode> {
    let known = MODES.iter().find(|(known, _)| *known == name);
    known.map(|(_, mode)| *mode).ok_or_else(|| {
        let names = MODES.map(|(name, _)| name).join(", ");
        invalid(&format!("sslmode `{name}` is not known; there are {names}"))
    })
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::Invalid, why.to_owned())
}

/// Whether what is sent to this host stays on this machine.
pub(crate) fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.starts_with('/') || address.is_ok_and(|address| address.is_loopback())
}

/// Says that receipts, and with them answers of the service, can be read on their way.
pub(crate) fn warn_unencrypted(server: &str) {
    tracing::warn!(
        "the connection to {server} is not encrypted, and receipts contain answers of the service; set sslmode=verify-full (Redis: rediss://)"
    );
}

#[cfg(test)]
#[path = "tls_test.rs"]
mod tests;
