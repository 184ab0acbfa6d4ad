//! Conformance suites, one call each: for authors of publishers.

use std::collections::HashMap;

use onceward::Result;

use crate::message::Message;
use crate::publisher::{Outgoing, Publisher};

/// Tests a publisher against its real broker. `read` returns everything that the broker has kept so far, in its
/// order within each ordering key. Panics with what is wrong.
pub async fn publisher<P: Publisher>(publisher: &P, read: impl AsyncFn() -> Result<Vec<Message>>) {
    // Everything that a message has arrives as it was.
    let full = Message::new("conformance.full", vec![0, 1, 13, 10, 255])
        .with_ordering_key("Müller & Söhne")
        .with_header("trace", "00-ä ö");
    let empty = Message::new("conformance.empty", "");
    let large = Message::new("conformance.large", vec![7; crate::PAYLOAD_BYTES_MAX]);
    let all = [full.clone(), empty.clone(), large.clone()];
    let batch: Vec<Outgoing> =
        all.iter().cloned().zip(1..).map(|(message, at)| Outgoing::new(message, at)).collect();
    for (result, message) in publisher.publish(&batch).await.into_iter().zip(&all) {
        result.unwrap_or_else(|error| panic!("{message:?} was not published: {error}"));
    }
    let found = read().await.expect("the broker can be read");
    for message in &all {
        let found = found.iter().find(|found| found.id() == message.id());
        assert_eq!(found, Some(message), "a message did not arrive as it was");
    }
    // What was confirmed in one order is kept in that order.
    for number in 0..50_i64 {
        let pair = ["a", "b"].map(|key| {
            Outgoing::new(
                Message::new("conformance.order", number.to_string()).with_ordering_key(key),
                10 + number,
            )
        });
        let results = publisher.publish(&pair).await;
        assert_eq!(results.len(), 2, "one answer for each message");
        for result in results {
            result.expect("it is published");
        }
    }
    let mut orders: HashMap<String, Vec<String>> = HashMap::new();
    for message in read().await.expect("the broker can be read") {
        if message.topic() == "conformance.order" {
            let text = String::from_utf8_lossy(message.payload()).into_owned();
            orders.entry(message.ordering_key().unwrap_or_default().to_owned()).or_default().push(text);
        }
    }
    let expected: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    for key in ["a", "b"] {
        assert_eq!(orders.get(key), Some(&expected), "the order of the ordering key `{key}`");
    }
    // A copy keeps the id: the consumer can tell.
    let copy = [Outgoing::new(empty.clone(), 2)];
    for result in publisher.publish(&copy).await {
        result.expect("a copy is no error");
    }
    assert!(publisher.publish(&[]).await.is_empty(), "no answer without a message");
}
