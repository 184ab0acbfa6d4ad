//! Addresses: `redis://user:password@host:6379/0?accept=volatile`.
//!
//! Several hosts may be given, separated by commas: nodes of a cluster to begin with, or sentinels.

use std::mem::take;

use onceward::{Error, ErrorKind, Result};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

#[cfg(feature = "tls")]
use crate::tls::SslMode;
use crate::tls::{TlsSettings, decoded};

/// An address, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// How to connect to each of the hosts.
    pub(super) hosts: Vec<ConnectionInfo>,
    /// The name of the primary at the sentinels, if the hosts are sentinels.
    pub(super) sentinel: Option<String>,
    /// How to log in to the sentinels, which have users of their own. Printed without its password.
    pub(super) sentinel_login: RedisConnectionInfo,
    pub(super) prefix: Option<String>,
    pub(super) volatile_accepted: bool,
}

const FORM: &str = "it looks like redis://user:password@host:6379/0?accept=volatile";

/// What an address can say, besides what it says about TLS.
const PARAMETERS: [&str; 5] = ["accept", "prefix", "sentinel", "sentinel_user", "sentinel_password"];

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (url, tls) = TlsSettings::take(url)?;
        let url = url.as_str();
        if url.contains('#') {
            // The driver would take `#insecure` for a word about TLS.
            return Err(invalid("it contains `#`; in a password it is written %23"));
        }
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = place.split_once("://").ok_or_else(|| invalid(FORM))?;
        let (server, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = server.rsplit_once('@').unwrap_or(("", server));
        let at = if login.is_empty() { "" } else { "@" };
        let hosts = hosts
            .split(',')
            .map(|host| connection(&format!("{scheme}://{login}{at}{host}/{database}"), scheme, &tls));
        let mut address = Self {
            hosts: hosts.collect::<Result<_>>()?,
            sentinel: None,
            sentinel_login: RedisConnectionInfo::default(),
            prefix: None,
            volatile_accepted: false,
        };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            address.set(name, value)?;
        }
        let login = &address.sentinel_login;
        if login.username().is_some() && login.password().is_none() {
            return Err(invalid("`sentinel_user` needs `sentinel_password`"));
        }
        if login.password().is_some() && address.sentinel.is_none() {
            return Err(invalid(
                "`sentinel_password` is for sentinels, and `sentinel` does not say for which primary",
            ));
        }
        Ok(address)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        if !PARAMETERS.contains(&name) {
            let known = PARAMETERS.join(", ");
            // What is behind a password may be the rest of it.
            let what = match self.sentinel_login.password() {
                None => format!("`{name}` is not known"),
                Some(_) => {
                    "what is behind `sentinel_password` is not known (`&` in it is written %26)".to_owned()
                }
            };
            let with_tls = "sslmode, sslrootcert, sslcert and sslkey";
            return Err(invalid(&format!("{what}; there are {known}, {with_tls}")));
        }
        match (name, value) {
            ("accept", "volatile") => self.volatile_accepted = true,
            ("accept", _) => return Err(invalid("`accept` can only be `volatile`")),
            (_, "") => return Err(invalid(&format!("`{name}` has no value"))),
            ("prefix", prefix) => self.prefix = Some(prefix.to_owned()),
            ("sentinel", name) => self.sentinel = Some(name.to_owned()),
            ("sentinel_user", user) => {
                self.sentinel_login = take(&mut self.sentinel_login).set_username(decoded(user));
            }
            (_, password) => {
                self.sentinel_login = take(&mut self.sentinel_login).set_password(decoded(password));
            }
        }
        Ok(())
    }
}

/// Whether an address says that what Redis may lose is accepted.
pub(crate) fn is_volatile_accepted(url: &str) -> Result<bool> {
    Address::parse(url).map(|address| address.volatile_accepted)
}

fn connection(url: &str, scheme: &str, tls: &TlsSettings) -> Result<ConnectionInfo> {
    let info = url.into_connection_info().map_err(|error| invalid(FORM).caused_by(error))?;
    if !info.addr().is_supported() {
        return Err(invalid("this build has no TLS to databases; build it with the cargo feature `tls`"));
    }
    match scheme {
        #[cfg(feature = "tls")]
        "rediss" => encrypted(info, tls),
        _ if *tls != TlsSettings::default() => {
            Err(invalid("TLS is chosen by its scheme, rediss://, and so are certificates and sslmode"))
        }
        _ => Ok(info),
    }
}

/// Adds the certificates that the address names, and how far the server is checked.
#[cfg(feature = "tls")]
fn encrypted(info: ConnectionInfo, tls: &TlsSettings) -> Result<ConnectionInfo> {
    let mode = tls.mode.unwrap_or(SslMode::VerifyFull);
    if mode < SslMode::Require {
        return Err(invalid(
            "rediss:// is always encrypted; sslmode is require, verify-ca or verify-full there, and redis:// is without TLS",
        ));
    }
    // Reads all files, so that one that cannot be used is named.
    tls.client_config(mode)?;
    let read = |file: &std::path::PathBuf| {
        std::fs::read(file).map_err(|error| invalid(&format!("{}", file.display())).caused_by(error))
    };
    let client_tls = match &tls.client {
        None => None,
        Some((cert, key)) => {
            Some(redis::ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
        }
    };
    let certificates =
        redis::TlsCertificates { client_tls, root_cert: tls.root_cert.as_ref().map(read).transpose()? };
    let client = redis::Client::build_with_tls(info, certificates)
        .map_err(|error| invalid("its certificates cannot be used").caused_by(error))?;
    let info = client.get_connection_info();
    let mut addr = info.addr().clone();
    // As PostgreSQL's own clients do it: an authority that is given counts.
    let names_authority = tls.root_cert.is_some();
    if mode == SslMode::VerifyCa || (mode == SslMode::Require && names_authority) {
        addr.set_danger_accept_invalid_hostnames(true);
    } else if let (SslMode::Require, ConnectionAddr::TcpTls { insecure, .. }) = (mode, &mut addr) {
        *insecure = true;
    }
    Ok(info.clone().set_addr(addr))
}

/// How errors name a server. Never with its password.
pub(super) fn describe(addr: &ConnectionAddr) -> String {
    format!("Redis at {addr}")
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("this is no address of a Redis server: {why}"))
}

#[cfg(test)]
#[path = "address_test.rs"]
mod tests;
