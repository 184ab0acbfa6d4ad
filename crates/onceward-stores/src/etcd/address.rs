//! Addresses: `etcd://user:password@host:2379,host:2379?prefix=onceward/`, and `etcds://…` for TLS.

use onceward::{Error, ErrorKind, Result};

use crate::tls::{TlsSettings, decoded};

/// The usual port of clients.
const PORT: u16 = 2379;
const FORM: &str = "it looks like etcd://user:password@host:2379,host:2379?prefix=onceward/";

/// An address, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) login: Option<(String, String)>,
    pub(super) prefix: Option<String>,
    /// `None` without TLS.
    pub(super) tls: Option<TlsSettings>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (url, tls) = TlsSettings::take(url)?;
        let (place, query) = url.split_once('?').unwrap_or((&url, ""));
        let (scheme, rest) = place.split_once("://").ok_or_else(|| invalid(FORM))?;
        if tls.mode.is_some() {
            return Err(invalid(
                "TLS is chosen by its scheme, etcds://, which checks the certificate and its name",
            ));
        }
        let tls = match scheme {
            "etcds" if cfg!(feature = "tls") => Some(tls),
            "etcds" => {
                return Err(invalid(
                    "this build has no TLS to databases; build it with the cargo feature `tls`",
                ));
            }
            _ if tls != TlsSettings::default() => return Err(invalid("certificates are for etcds://")),
            _ => None,
        };
        let (login, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
        let login = match login.split_once(':') {
            Some((user, password)) => Some((decoded(user), decoded(password))),
            None if login.is_empty() => None,
            None => return Err(invalid("a user needs a password, as in user:password@host")),
        };
        let hosts = hosts.trim_end_matches('/').split(',').map(host).collect::<Result<_>>()?;
        let mut prefix = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("prefix", value)) if !value.is_empty() => prefix = Some(decoded(value)),
                _ => {
                    return Err(invalid(&format!(
                        "`{parameter}` is not known; there are prefix, sslrootcert, sslcert and sslkey"
                    )));
                }
            }
        }
        Ok(Self { hosts, login, prefix, tls })
    }
}

fn host(text: &str) -> Result<(String, u16)> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            (name, port.parse().map_err(|_| invalid(&format!("`{port}` is no port; {FORM}")))?)
        }
        _ => (text, PORT),
    };
    if name.is_empty() || name.contains('/') {
        return Err(invalid(FORM));
    }
    Ok((name.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("this is no address of etcd: {why}"))
}

#[cfg(test)]
#[path = "address_test.rs"]
mod tests;
