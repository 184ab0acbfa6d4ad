//! The part of an address that names a volatile front: `postgres://…?front=redis://host:6379/0`.

use std::sync::Arc;

use onceward::{Front, IdentitySource, Result};

use super::invalid;
use crate::kit::percent::decoded;

/// Splits an address into that of the store and that of its front. Unencoded, the front's address continues to the end;
/// percent-encoded, it may be followed by other parameters.
pub(crate) fn take(url: &str) -> Result<(String, Option<String>)> {
    let Some((place, query)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let mut rest = Vec::new();
    let mut left = Some(query);
    while let Some(now) = left {
        if let Some(value) = now.strip_prefix("front=") {
            let (front, behind) = match value.split_once('&') {
                Some((front, behind)) if !front.contains("://") => (front, Some(behind)),
                _ => (value, None),
            };
            rest.extend(behind);
            let front = if front.contains("://") { front.to_owned() } else { decoded(front) };
            if front.is_empty() {
                return Err(invalid(
                    "`front` has no value; it looks like front=redis://host:6379/0".to_owned(),
                ));
            }
            let separator = if rest.is_empty() { "" } else { "?" };
            return Ok((format!("{place}{separator}{}", rest.join("&")), Some(front)));
        }
        let (parameter, behind) =
            now.split_once('&').map_or((now, None), |(one, behind)| (one, Some(behind)));
        rest.push(parameter);
        left = behind;
    }
    Ok((url.to_owned(), None))
}

/// Opens the front at an address, before the store with this identity.
pub(super) async fn open(url: &str, name: &str, identity: Option<Arc<dyn IdentitySource>>) -> Result<Front> {
    let Some(identity) = identity else {
        let detail = format!("`front=` is for postgres:// and mysql://; `{name}:` is used without it");
        return Err(invalid(detail));
    };
    connect(url, identity).await
}

#[cfg(feature = "redis")]
async fn connect(url: &str, identity: Arc<dyn IdentitySource>) -> Result<Front> {
    if !(url.starts_with("redis://") || url.starts_with("rediss://")) {
        // Without the address: it may have a password.
        return Err(invalid("a front is redis:// or rediss://, as in front=redis://host:6379/0".to_owned()));
    }
    Ok(Front::new(Arc::new(crate::redis::RedisFront::open(url).await?), identity))
}

#[cfg(not(feature = "redis"))]
fn connect(_: &str, _: Arc<dyn IdentitySource>) -> std::future::Ready<Result<Front>> {
    let not_in_build = "`front=` is not part of this build; build it with the cargo feature `redis`";
    std::future::ready(Err(invalid(not_in_build.to_owned())))
}

#[cfg(test)]
#[path = "front_test.rs"]
mod tests;
