//! The host that a request is for: the one that a trusted proxy names, else the target's own, else the `Host` field.

use http::header::HOST;
use http::{HeaderMap, Uri};

use crate::request_fields::RequestFields;

/// Among the extensions of a request: the host that the client asked for, by the word of a proxy that is trusted
/// (`X-Forwarded-Host`). It counts instead of the request's own. Only a component in front of the layer that knows the
/// proxy may insert it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedHost(pub String);

/// The host and port of a request as they came, without user name and password; `None` if it names none.
pub(crate) fn of<'r>(
    uri: &'r Uri,
    headers: &'r HeaderMap,
    fields: RequestFields,
    forwarded: Option<&'r ForwardedHost>,
) -> Option<&'r [u8]> {
    let raw = match (forwarded, uri.authority()) {
        (Some(ForwardedHost(host)), _) => host.as_bytes(),
        (None, Some(authority)) => authority.as_str().as_bytes(),
        (None, None) if !fields.has(RequestFields::HOST) => return None,
        (None, None) => headers.get(HOST)?.as_bytes(),
    };
    let host = raw.rsplit(|byte| *byte == b'@').next().unwrap_or(raw).trim_ascii();
    (!host.is_empty()).then_some(host)
}

/// The same host without the port that a scheme implies, and without a trailing dot. Its case is the caller's to fold.
pub(crate) fn plain(host: &[u8]) -> &[u8] {
    let ports = [&b":80"[..], b":443", b":"];
    let host = ports.iter().find_map(|port| host.strip_suffix(*port)).unwrap_or(host);
    host.strip_suffix(b".").unwrap_or(host)
}

#[cfg(test)]
#[path = "host_test.rs"]
mod tests;
