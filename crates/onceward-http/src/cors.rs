//! CORS for browsers: the fields of the protocol in preflights, and CORS fields on the answers that the layer makes
//! itself.
//!
//! ```text
//! the answer has Access-Control-Allow-Origin   the service does CORS itself: only our names are added to its lists
//! it has none, and the route allows the origin Access-Control-Allow-Origin, Vary: Origin, our fields exposed;
//!                                              a preflight is answered here
//! a replay                                     what was stored for another origin is removed
//! ```

use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, CONTENT_LENGTH, ETAG, LINK, LOCATION, ORIGIN, RETRY_AFTER, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use onceward::{Error, ErrorKind, Result};

use crate::headers::{
    self, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, ONCEWARD_RECORDED, ONCEWARD_TRY,
    ONCEWARD_UNGUARDED,
};

/// What a page may read besides the body and the fields that browsers always show.
const EXPOSED: [HeaderName; 8] = [
    IDEMPOTENCY_EXPIRES,
    IDEMPOTENT_REPLAYED,
    ONCEWARD_RECORDED,
    ONCEWARD_UNGUARDED,
    RETRY_AFTER,
    LINK,
    LOCATION,
    ETAG,
];
/// What a page may send.
const ALLOWED: [HeaderName; 2] = [IDEMPOTENCY_KEY, ONCEWARD_TRY];
/// How long a browser may keep the answer to a preflight, in seconds.
const MAX_AGE: &str = "600";
const ANY: &str = "*";

/// The origins whose pages may use a route: exact ones such as `https://shop.example`, or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedOrigins(Arc<[String]>);

impl AllowedOrigins {
    /// These origins. Fails if one of them is not an origin: a scheme, a host and perhaps a port, without a path.
    pub fn new(origins: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let origins: Arc<[String]> = origins.into_iter().map(Into::into).collect();
        if origins.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "the list of allowed origins must not be empty"));
        }
        match origins.iter().find(|origin| !is_origin(origin)) {
            None => Ok(Self(origins)),
            Some(wrong) => {
                let detail =
                    format!("{wrong:?} is not an origin; write one as in https://shop.example, or *");
                Err(Error::new(ErrorKind::Invalid, detail))
            }
        }
    }

    /// All of them, as they were given.
    pub fn each(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// What the field says to a page of this origin; `None` if it is not allowed.
    fn allow(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        if self.each().any(|own| own == ANY) {
            return Some(HeaderValue::from_static(ANY));
        }
        self.each().any(|own| own.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }
}

/// As browsers write them: lower case, without a default port and without a path.
fn is_origin(text: &str) -> bool {
    let plain = || {
        let uri: Uri = text.parse().ok()?;
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?.as_str());
        let is_plain = format!("{scheme}://{authority}") == text && !authority.contains('@');
        Some(is_plain && !text.bytes().any(|byte| byte.is_ascii_uppercase()))
    };
    text == ANY || plain().unwrap_or(false)
}

/// The statements of a request about the page that sent it.
#[derive(Clone, Debug, Default)]
pub struct FromBrowser {
    origin: Option<HeaderValue>,
    preflight: Option<Preflight>,
}

#[derive(Clone, Debug)]
struct Preflight {
    method: HeaderValue,
    headers: Vec<HeaderValue>,
}

impl FromBrowser {
    /// Reads it from the head of a request.
    pub fn of<B>(request: &Request<B>) -> Self {
        let headers = request.headers();
        let Some(origin) = headers.get(ORIGIN) else { return Self::default() };
        let method =
            headers.get(ACCESS_CONTROL_REQUEST_METHOD).filter(|_| request.method() == Method::OPTIONS);
        let preflight = method.map(|method| Preflight {
            method: method.clone(),
            headers: headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().cloned().collect(),
        });
        Self { origin: Some(origin.clone()), preflight }
    }

    /// The method that a preflight asks for.
    pub fn asked_method<B>(request: &Request<B>) -> Option<Method> {
        if request.method() != Method::OPTIONS || !request.headers().contains_key(ORIGIN) {
            return None;
        }
        Method::from_bytes(request.headers().get(ACCESS_CONTROL_REQUEST_METHOD)?.as_bytes()).ok()
    }

    /// Completes an answer for the page that asked: `empty` makes the body of a preflight's answer.
    pub fn complete<B>(
        &self,
        allowed: Option<&AllowedOrigins>,
        response: Response<B>,
        empty: impl FnOnce() -> B,
    ) -> Response<B> {
        let mut response = response;
        let headers = response.headers_mut();
        forget_other_origin(headers, self.origin.as_ref());
        let (Some(allowed), Some(origin)) = (allowed, &self.origin) else { return response };
        let Some(allow) = allowed.allow(origin) else {
            // A cache must not hand this answer to a page that is allowed.
            vary_by_origin(headers);
            return response;
        };
        if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            match &self.preflight {
                Some(_) => add_names(headers, &ACCESS_CONTROL_ALLOW_HEADERS, &ALLOWED),
                None => add_names(headers, &ACCESS_CONTROL_EXPOSE_HEADERS, &EXPOSED),
            }
            return response;
        }
        if let Some(preflight) = &self.preflight {
            response = Response::new(empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            let headers = response.headers_mut();
            headers.remove(CONTENT_LENGTH);
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, preflight.method.clone());
            for asked in &preflight.headers {
                headers.append(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
            }
            add_names(headers, &ACCESS_CONTROL_ALLOW_HEADERS, &ALLOWED);
            headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        } else {
            add_names(headers, &ACCESS_CONTROL_EXPOSE_HEADERS, &EXPOSED);
        }
        let headers = response.headers_mut();
        if allow != ANY {
            vary_by_origin(headers);
        }
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allow);
        response
    }
}

/// Removes from a replay what the service said to a page of another origin than this.
#[inline]
pub(crate) fn forget_other_origin(headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
    if headers::has(headers, &IDEMPOTENT_REPLAYED) {
        forget_in_replay(headers, origin);
    }
}

fn forget_in_replay(headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
    // Most services leave CORS to others: comparing the beginnings of a few names is cheaper than a look-up.
    if !headers.keys().any(is_cors) {
        return;
    }
    let said = headers.get(ACCESS_CONTROL_ALLOW_ORIGIN);
    if said.is_some_and(|said| said == ANY || Some(said) == origin) {
        return;
    }
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_cors(name)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

fn is_cors(name: &HeaderName) -> bool {
    name.as_str().starts_with("access-control-")
}

fn vary_by_origin(headers: &mut HeaderMap) {
    if !lists(headers, &VARY, "origin") {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}

/// Adds names to a list, unless it has them.
fn add_names(headers: &mut HeaderMap, list: &HeaderName, names: &[HeaderName]) {
    for name in names {
        if !lists(headers, list, name.as_str()) {
            headers.append(list, HeaderValue::from_name(name.clone()));
        }
    }
}

/// Whether a list field has this name. `*` covers all names, except with credentials, which we never allow.
fn lists(headers: &HeaderMap, list: &HeaderName, name: &str) -> bool {
    let lines = headers.get_all(list).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .any(|own| own.trim() == ANY || own.trim().eq_ignore_ascii_case(name))
}

#[cfg(test)]
#[path = "cors_test.rs"]
mod tests;
