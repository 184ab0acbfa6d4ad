//! What a broker has delivered, as a message of ours. All sources read foreign and damaged messages by these rules.

use bytes::Bytes;

use super::Delivery;
use crate::message::{Message, is_reserved};

/// A message as a broker has it.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// One of another publisher may have none.
    pub(crate) id: Option<String>,
    pub(crate) topic: Option<String>,
    pub(crate) ordering_key: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) payload: Bytes,
    /// Its number in the outbox of its publisher.
    pub(crate) number: Option<i64>,
    /// What the broker delivered and what is no part of any message, such as a header that is not text.
    pub(crate) fault: Option<String>,
}

impl Found {
    /// The delivery. Without an id, `place` is the id: it is the same whenever the message is read. What is out of bounds
    /// is left out, and the rest is kept: a malformed message stays in the order of its key, and can be looked at.
    pub(crate) fn into_delivery(self, place: &str, position: i64) -> Delivery {
        let (topic, has_derived_id) = (self.topic.unwrap_or_else(|| "unknown".to_owned()), self.id.is_none());
        let mut message =
            Message::new(topic, self.payload).with_id(self.id.unwrap_or_else(|| place.to_owned()));
        if let Some(key) = self.ordering_key {
            message = message.with_ordering_key(key);
        }
        for (name, value) in self.headers.into_iter().filter(|(name, _)| !is_reserved(name)) {
            message = message.with_header(name, value);
        }
        let mut delivery = Delivery::new(message, position);
        (delivery.number, delivery.has_derived_id) = (self.number, has_derived_id);
        delivery.fault = self.fault.or(delivery.fault);
        if delivery.fault.is_some() {
            delivery.message = delivery.message.within_bounds(place);
        }
        delivery
    }

    /// Notes the number. Nothing depends on it but a warning, so one that cannot be read is none.
    #[cfg(any(feature = "kafka", feature = "nats", feature = "redis", test))]
    pub(crate) fn read_number(&mut self, text: &str) {
        self.number = text.parse().ok();
    }

    /// Notes bytes that should be text and are not.
    #[cfg(any(feature = "kafka", feature = "rabbitmq", feature = "redis", test))]
    pub(crate) fn text(&mut self, what: &str, bytes: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(bytes).ok().map(str::to_owned);
        if text.is_none() {
            self.fault.get_or_insert_with(|| format!("{what} is not UTF-8 text"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_message_is_taken_as_it_is() {
        let found = Found {
            id: Some("m-1".to_owned()),
            topic: Some("orders.placed".to_owned()),
            ordering_key: Some("k".to_owned()),
            headers: vec![("trace".to_owned(), "7".to_owned()), ("x-death".to_owned(), "1".to_owned())],
            payload: Bytes::from_static(b"81"),
            number: Some(3),
            fault: None,
        };
        let delivery = found.into_delivery("s:7", 7);
        assert_eq!((delivery.number, delivery.has_derived_id), (Some(3), false));
        let expected = Message::new("orders.placed", "81")
            .with_id("m-1")
            .with_ordering_key("k")
            .with_header("trace", "7");
        assert_eq!((delivery.message, delivery.position, delivery.fault), (expected, 7, None));
    }

    #[test]
    fn a_malformed_message_keeps_what_can_be_kept() {
        let found = || Found {
            id: Some("m-1".to_owned()),
            topic: Some("orders.placed".to_owned()),
            ordering_key: Some("k".to_owned()),
            headers: vec![("trace".to_owned(), "7".to_owned())],
            payload: Bytes::from_static(b"81"),
            number: None,
            fault: None,
        };
        let whole = Message::new("orders.placed", "81")
            .with_id("m-1")
            .with_ordering_key("k")
            .with_header("trace", "7");
        // One that is damaged in one place stays in the order of its key.
        let header = Found { fault: Some("the header `a` is not UTF-8 text".to_owned()), ..found() };
        assert_eq!(header.into_delivery("s:7", 7).message, whole);
        let id = Found { id: Some("a b".to_owned()), ..found() }.into_delivery("s:7", 7);
        assert_eq!(id.message, whole.clone().with_id("s:7"));
        let topic = Found { topic: Some("a b".to_owned()), ..found() }.into_delivery("s:7", 7);
        assert_eq!((topic.message.topic(), topic.message.ordering_key()), ("unknown", Some("k")));
        let long = "h".repeat(crate::HEADERS_BYTES_MAX);
        let headers = vec![("trace".to_owned(), "7".to_owned()), ("z".to_owned(), long)];
        let headers = Found { headers, ..found() }.into_delivery("s:7", 7);
        assert_eq!(headers.message, whole);
        // Messages with the same unreadable key stay together.
        let keys = [1, 2, 2].map(|n| "k".repeat(300 + n)).map(|key| {
            let delivery = Found { ordering_key: Some(key), ..found() }.into_delivery("s:7", 7);
            delivery.message.check().unwrap();
            assert!(delivery.fault.is_some());
            delivery.message.ordering_key().unwrap().to_owned()
        });
        assert!(keys[0] != keys[1] && keys[1] == keys[2], "{keys:?}");
        // A payload that is too long is kept whole.
        let payload = Bytes::from(vec![7; crate::PAYLOAD_BYTES_MAX + 1]);
        let large = Found { payload, ..found() }.into_delivery("s:7", 7);
        assert_eq!(large.message.payload().len(), crate::PAYLOAD_BYTES_MAX + 1);
        assert!(large.fault.unwrap().contains("payload") && large.message.ordering_key() == Some("k"));
    }

    #[test]
    fn what_has_no_id_or_is_damaged_is_kept_under_its_place() {
        let bare = Found { payload: Bytes::from_static(b"x"), ..Found::default() };
        let delivery = bare.into_delivery("s:7", 7);
        assert!(delivery.has_derived_id);
        assert_eq!((delivery.message.id(), delivery.fault), ("s:7", None));
        let bad_id =
            Found { id: Some("a b".to_owned()), payload: Bytes::from_static(b"x"), ..Found::default() };
        let delivery = bad_id.into_delivery("s:8", 8);
        assert!(!delivery.has_derived_id, "it has one, which is malformed");
        assert_eq!((delivery.message.id(), &**delivery.message.payload()), ("s:8", &b"x"[..]));
        assert!(delivery.fault.unwrap().contains("byte 0x20"));
        for (text, number) in [("12", Some(12)), ("-1", Some(-1)), ("", None), ("1e3", None)] {
            let mut found = Found::default();
            found.read_number(text);
            let delivery = found.into_delivery("s:9", 9);
            assert_eq!((delivery.number, delivery.fault), (number, None), "`{text}`");
        }
        let mut bytes = Found::default();
        assert_eq!(bytes.text("the header `a`", &[0xff]), None);
        let delivery = bytes.into_delivery("s:9", 9);
        assert_eq!(delivery.fault.as_deref(), Some("the header `a` is not UTF-8 text"));
    }
}
