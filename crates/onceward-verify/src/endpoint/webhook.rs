//! Signed events, as providers deliver them. Where the time is signed, every delivery of one event has another signature;
//! where only the body is signed, all have the same.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::error::{Error, Result};

/// How an event is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// `Stripe-Signature: t=…,v1=…`.
    Stripe,
    /// `X-Hub-Signature-256: sha256=…` and `X-GitHub-Delivery`.
    GitHub,
    /// `webhook-id`, `webhook-timestamp` and `webhook-signature: v1,…`, of the Standard Webhooks specification.
    Standard,
    /// `X-Shopify-Hmac-Sha256: …` with `X-Shopify-Webhook-Id` and `X-Shopify-Topic`.
    Shopify,
}

impl Scheme {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::GitHub => "github",
            Self::Standard => "standard",
            Self::Shopify => "shopify",
        }
    }

    /// The kind of an event, where a field names it and nothing else was asked for: one that every sender has. A `ping` has
    /// no effect anywhere.
    pub(super) fn event_name(self) -> &'static str {
        match self {
            Self::Shopify => "orders/create",
            Self::Stripe | Self::GitHub | Self::Standard => "push",
        }
    }

    /// Whether the time of the delivery is signed, so that a later delivery has another signature.
    pub(super) fn signs_time(self) -> bool {
        match self {
            Self::Stripe | Self::Standard => true,
            Self::GitHub | Self::Shopify => false,
        }
    }
}

/// An endpoint for signed events.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Webhook {
    /// Where they go.
    pub url: String,
    /// How they are signed.
    pub scheme: Scheme,
    /// With what. For Standard Webhooks it may begin with `whsec_`.
    pub secret: String,
    /// An event. Empty for `{"id":…,"type":"charge.succeeded"}`.
    pub body: Bytes,
    /// Where in it its id is.
    pub id_pointer: String,
    /// The kind of the event, where a field names it: `X-GitHub-Event`, `push` by default, or `X-Shopify-Topic`,
    /// `orders/create` by default.
    pub event_name: String,
}

impl Webhook {
    /// An endpoint that takes events that are signed so.
    pub fn new(url: impl Into<String>, scheme: Scheme, secret: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            scheme,
            secret: secret.into(),
            body: Bytes::new(),
            id_pointer: "/id".to_owned(),
            event_name: scheme.event_name().to_owned(),
        }
    }

    /// Sets the event: JSON with an id. Empty for `{"id":…,"type":"charge.succeeded"}`.
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets where in the event its id is, `/id` by default: a JSON pointer.
    pub fn with_id_pointer(mut self, pointer: impl Into<String>) -> Self {
        self.id_pointer = pointer.into();
        self
    }

    /// Sets the kind of the event, where a field names it.
    pub fn with_event_name(mut self, name: impl Into<String>) -> Self {
        self.event_name = name.into();
        self
    }

    /// The event with this id.
    pub(super) fn event(&self, id: &str) -> Result<Bytes> {
        let event =
            if self.body.is_empty() { &b"{\"type\":\"charge.succeeded\"}"[..] } else { &self.body[..] };
        let json = serde_json::from_slice(event).ok();
        let event = super::setup::with_value(json.as_ref(), &self.id_pointer, id).ok_or_else(|| {
            Error::invalid(format!("--webhook-id-pointer {}: the event has no object there", self.id_pointer))
        })?;
        Ok(event.to_string().into())
    }

    /// The fields of a delivery of this event at this moment.
    pub(crate) fn fields(&self, id: &str, body: &[u8], unix_s: u64) -> Vec<(&'static str, String)> {
        match self.scheme {
            Scheme::Stripe => {
                let signature =
                    hex(&sign(self.secret.as_bytes(), &[unix_s.to_string().as_bytes(), b".", body]));
                vec![("Stripe-Signature", format!("t={unix_s},v1={signature}"))]
            }
            Scheme::GitHub => {
                let signature = hex(&sign(self.secret.as_bytes(), &[body]));
                vec![
                    ("X-Hub-Signature-256", format!("sha256={signature}")),
                    ("X-GitHub-Delivery", id.to_owned()),
                    ("X-GitHub-Event", self.event_name.clone()),
                ]
            }
            Scheme::Standard => {
                let secret = self.secret.strip_prefix("whsec_").unwrap_or(&self.secret);
                let key = STANDARD.decode(secret).unwrap_or_else(|_| self.secret.as_bytes().to_vec());
                let timestamp = unix_s.to_string();
                let signature = sign(&key, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
                vec![
                    ("webhook-id", id.to_owned()),
                    ("webhook-timestamp", timestamp),
                    ("webhook-signature", format!("v1,{}", STANDARD.encode(signature))),
                ]
            }
            Scheme::Shopify => {
                let signature = STANDARD.encode(sign(self.secret.as_bytes(), &[body]));
                vec![
                    ("X-Shopify-Hmac-Sha256", signature),
                    ("X-Shopify-Webhook-Id", id.to_owned()),
                    // Some receivers know an event by this one, and a shop by its domain.
                    ("X-Shopify-Event-Id", id.to_owned()),
                    ("X-Shopify-Topic", self.event_name.clone()),
                    ("x-shopify-shop-domain", "verify.myshopify.com".to_owned()),
                ]
            }
        }
    }
}

fn sign(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
#[path = "webhook_test.rs"]
mod tests;
