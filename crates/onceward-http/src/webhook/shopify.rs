//! Shopify: `X-Shopify-Hmac-Sha256: BASE64`, HMAC-SHA256 over the body. Neither the id nor the time is signed. One
//! event may be sent under several topics, so that the key is the topic with the event's id.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderName;

use super::{BadSignature, Event, Signed};

const SIGNATURE: HeaderName = HeaderName::from_static("x-shopify-hmac-sha256");
const EVENT: HeaderName = HeaderName::from_static("x-shopify-event-id");
const TOPIC: HeaderName = HeaderName::from_static("x-shopify-topic");
const SHOP: HeaderName = HeaderName::from_static("x-shopify-shop-domain");

pub(super) fn verify(signed: &Signed<'_>) -> Result<Event, BadSignature> {
    let text = signed.field(&SIGNATURE)?;
    let signature = STANDARD.decode(text).map_err(|_| BadSignature::Malformed(SIGNATURE))?;
    signed.any_matches(&[signed.body], &[signature])?;
    let (topic, id, shop) = (signed.field(&TOPIC)?, signed.field(&EVENT)?, signed.field(&SHOP)?);
    Ok(Event::new(format!("{topic} {id}")).with_content(topic.to_owned(), shop.to_owned()))
}
