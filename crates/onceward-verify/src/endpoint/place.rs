//! The target of requests: a parsed URL, and whether its host is local.

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Uri;
use tokio::net::TcpStream;

use super::error::{Error, Result};
use super::tls::{Peer, Trust};
use super::volley::HttpVersion;
use super::wire::Wire;

/// A connection that is not there by then will not come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An `http` or `https` URL, taken apart once.
#[derive(Clone, Debug)]
pub struct Place {
    text: String,
    host: String,
    port: u16,
    target: String,
    /// Who must answer, where that is to be proved.
    peer: Option<Peer>,
    /// The address that answered first: a name is looked up once, not for each of a thousand clients.
    address: Arc<OnceLock<SocketAddr>>,
    /// What is sent as `Host` instead of its own.
    sent_host: Option<String>,
}

impl Place {
    /// Reads a URL such as `http://127.0.0.1:3000/charges`.
    pub fn parse(text: &str, trust: &Trust) -> Result<Self> {
        let wrong = |why: &str| Error::invalid(format!("`{text}` is not a URL to verify: {why}"));
        let uri: Uri = text.parse().map_err(|error: http::uri::InvalidUri| wrong(&error.to_string()))?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it names no host"))?;
        let host = host.trim_matches(['[', ']']);
        let peer = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => Some(trust.peer(host)?),
            _ => return Err(wrong("it must begin with http:// or https://")),
        };
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Ok(Self {
            text: text.to_owned(),
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(default_port(peer.is_some())),
            target: target.to_owned(),
            peer,
            address: Arc::default(),
            sent_host: None,
        })
    }

    /// The URL as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The same place, addressed by the host of another. Instances of one service are reached by one name: the host may
    /// count as a part of the request.
    pub fn with_host_of(mut self, other: &Self) -> Self {
        self.sent_host = Some(other.authority());
        self
    }

    /// The same place with this parameter in its query, in the place of one of the same name; or without it.
    pub fn with_parameter(&self, name: &str, value: Option<&str>) -> Self {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let is_other = |part: &&str| !part.is_empty() && part.split('=').next() != Some(name);
        let mut parts: Vec<String> = query.split('&').filter(is_other).map(str::to_owned).collect();
        parts.extend(value.map(|value| format!("{name}={}", percent_encoded(value))));
        let query = if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) };
        Self { target: format!("{path}{query}"), ..self.clone() }
    }

    /// The value of the `Host` field.
    pub fn authority(&self) -> String {
        if let Some(host) = &self.sent_host {
            return host.clone();
        }
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.peer.is_some()) { host } else { format!("{host}:{}", self.port) }
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.peer.is_some() { "https" } else { "http" }
    }

    /// Returns whether nobody else can be meant: a loopback or private address, or a name without a dot, which
    /// only resolves inside one's own network.
    pub fn is_own(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
            Ok(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
            Err(_) => !self.host.contains('.') || self.host.to_ascii_lowercase().ends_with(".localhost"),
        }
    }

    /// A connection on which this version is spoken.
    pub(super) async fn connect(&self, version: HttpVersion) -> io::Result<Box<dyn Wire>> {
        let connect = async {
            let stream = self.reach().await?;
            match &self.peer {
                None => Ok(Box::new(stream) as Box<dyn Wire>),
                Some(peer) => peer.connect(stream, version).await,
            }
        };
        in_time(connect).await
    }

    /// Whether somebody listens.
    pub(super) async fn is_up(&self) -> bool {
        in_time(self.reach()).await.is_ok()
    }

    async fn reach(&self) -> io::Result<TcpStream> {
        let stream = match self.address.get() {
            Some(address) => TcpStream::connect(address).await?,
            None => TcpStream::connect((self.host.as_str(), self.port)).await?,
        };
        if let Ok(address) = stream.peer_addr() {
            self.address.get_or_init(|| address);
        }
        // The last byte must leave at once, not wait for the acknowledgement of what went before it.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

async fn in_time<T>(connect: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no connection in ten seconds");
    tokio::time::timeout(CONNECT_TIMEOUT, connect).await.map_err(late)?
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

fn default_port(is_secure: bool) -> u16 {
    if is_secure { 443 } else { 80 }
}

#[cfg(test)]
#[path = "place_test.rs"]
mod tests;
