//! Which fields a request has, of those that the layer looks at. One pass over its names is cheaper than a look-up for
//! each of these, most of which a request does not have.

use http::HeaderMap;

/// A set of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFields(u16);

impl RequestFields {
    pub(crate) const HOST: Self = Self(1);
    pub(crate) const ORIGIN: Self = Self(1 << 1);
    pub(crate) const CONNECTION: Self = Self(1 << 2);
    pub(crate) const CONTENT_ENCODING: Self = Self(1 << 3);
    pub(crate) const METHOD_OVERRIDE: Self = Self(1 << 4);
    /// `Idempotency-Key`.
    pub(crate) const KEY: Self = Self(1 << 5);
    /// `X-Request-Id` or `traceparent`.
    pub(crate) const REQUEST_ID: Self = Self(1 << 6);
    pub(crate) const AUTHORIZATION: Self = Self(1 << 7);
    /// `X-Api-Key` or `Api-Key`.
    pub(crate) const API_KEY: Self = Self(1 << 8);
    pub(crate) const COOKIE: Self = Self(1 << 9);
    pub(crate) const PROXY_AUTHORIZATION: Self = Self(1 << 10);
    pub(crate) const SIGNATURE_INPUT: Self = Self(1 << 11);

    #[inline]
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self(headers.keys().fold(0, |all, name| all | Self::named(name.as_str()).0))
    }

    /// Whether it has this one.
    pub(crate) fn has(self, field: Self) -> bool {
        self.0 & field.0 != 0
    }

    /// By the length first: few names have the same one.
    #[inline]
    fn named(name: &str) -> Self {
        // A text of a known length is compared in place, without a call.
        match name.len() {
            4 if name == "host" => Self::HOST,
            6 if name == "origin" => Self::ORIGIN,
            6 if name == "cookie" => Self::COOKIE,
            7 if name == "api-key" => Self::API_KEY,
            9 if name == "x-api-key" => Self::API_KEY,
            10 if name == "connection" => Self::CONNECTION,
            11 if name == "traceparent" => Self::REQUEST_ID,
            12 if name == "x-request-id" => Self::REQUEST_ID,
            13 if name == "authorization" => Self::AUTHORIZATION,
            15 if name == "idempotency-key" => Self::KEY,
            15 if name == "signature-input" => Self::SIGNATURE_INPUT,
            16 if name == "content-encoding" => Self::CONTENT_ENCODING,
            19 if name == "proxy-authorization" => Self::PROXY_AUTHORIZATION,
            22 if name == "x-http-method-override" => Self::METHOD_OVERRIDE,
            _ => Self::default(),
        }
    }
}

#[cfg(test)]
#[path = "request_fields_test.rs"]
mod tests;
