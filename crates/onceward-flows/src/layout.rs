//! How messages are laid out in a broker: the names of partitions and of headers. Publishers and sources agree on this
//! file.
//!
//! ```text
//! broker           a partition                             topic, id, ordering key, position
//! NATS JetStream   the subjects `PREFIX.PARTITION.>`       in the subject; headers
//! Redis Streams    the stream `PREFIX.PARTITION`           fields of the entry
//! RabbitMQ         the stream queue `PREFIX.PARTITION`     headers, the property message-id
//! Kafka            the partition of the topic `PREFIX`     headers
//! ```

#![allow(dead_code, reason = "each broker needs its own part of it")]

use onceward::{Error, ErrorKind, Result};

/// The position in the outbox.
pub(crate) const POSITION: &str = "Onceward-Position";
/// The ordering key.
pub(crate) const ORDERING_KEY: &str = "Onceward-Ordering-Key";
/// The topic, where it is not in the name of the place.
pub(crate) const TOPIC: &str = "Onceward-Topic";
/// The message id, where the broker has no field for it.
pub(crate) const MESSAGE_ID: &str = "Onceward-Message-Id";

const PARTITIONS_MAX: u32 = crate::lane::LANES;

/// The prefix and the number of partitions of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    prefix: String,
    partitions: u32,
}

impl Layout {
    pub(crate) fn new(prefix: &str, partitions: u32) -> Result<Self> {
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            let detail = format!("{partitions} partitions; 1 to {PARTITIONS_MAX} are possible");
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if prefix.is_empty() || !prefix.split('.').all(|word| !word.is_empty() && word.bytes().all(is_plain))
        {
            let detail = "the prefix is words of letters, digits, `_` and `-`, with a dot between two words";
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        Ok(Self { prefix: prefix.to_owned(), partitions })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The name of a partition where each is a stream or a queue of its own.
    pub(crate) fn place(&self, partition: u32) -> String {
        format!("{}.{partition}", self.prefix)
    }

    /// What a stream of NATS for it must take.
    pub(crate) fn all(&self) -> String {
        format!("{}.>", self.prefix)
    }

    /// The subject of a topic in NATS.
    pub(crate) fn subject(&self, partition: u32, topic: &str) -> String {
        format!("{}.{partition}.{topic}", self.prefix)
    }

    /// All subjects of a partition in NATS.
    pub(crate) fn filter(&self, partition: u32) -> String {
        self.subject(partition, ">")
    }

    /// The partition and the topic of a subject, if it is one of ours.
    pub(crate) fn parse<'a>(&self, subject: &'a str) -> Option<(u32, &'a str)> {
        let rest = subject.strip_prefix(self.prefix.as_str())?.strip_prefix('.')?;
        let (partition, topic) = rest.split_once('.')?;
        Some((partition.parse().ok()?, topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_read_as_they_are_written() {
        let layout = Layout::new("shop.events", 16).unwrap();
        assert_eq!(layout.subject(7, "orders.placed"), "shop.events.7.orders.placed");
        assert_eq!(layout.parse("shop.events.7.orders.placed"), Some((7, "orders.placed")));
        for foreign in
            ["shop.events", "shop.events.7", "shop.events.x.orders", "shop.eventsx.7.orders", "7.orders"]
        {
            assert_eq!(layout.parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn bad_layouts_are_refused() {
        for (prefix, partitions) in [("", 1), ("a..b", 1), ("a.*", 1), ("a", 0), ("a", 1025)] {
            assert!(Layout::new(prefix, partitions).is_err(), "{prefix} {partitions}");
        }
    }
}
