//! The suite for publishers.

use std::collections::HashMap;
use std::time::Duration;

use super::{Broker, in_time, number_of, numbered, publish_all};
use crate::message::Message;
use crate::publisher::{Outgoing, Publisher};

/// Tests a publisher against its real broker, which it kills and starts again. Panics with what is wrong.
///
/// * A message arrives with everything that it has; the largest one too.
/// * What was confirmed in one order is kept in that order, within an ordering key.
/// * A copy, also of a message whose confirmation was lost, has the same id.
/// * While the broker is down nothing is confirmed and no call waits forever; afterwards the publisher continues by
///   itself.
/// * What was confirmed is there after the broker was killed.
pub async fn publisher<P: Publisher, B: Broker>(publisher: &P, broker: &mut B) {
    whole(publisher, broker).await;
    order(publisher, broker).await;
    lost_confirmations(publisher, broker).await;
    down(publisher, broker).await;
    killed(publisher, broker).await;
}

async fn whole<P: Publisher, B: Broker>(publisher: &P, broker: &mut B) {
    let full = Message::new("conformance.full", vec![0, 1, 13, 10, 255])
        .with_ordering_key("Müller & Söhne")
        .with_header("trace", "00-ä ö");
    let empty = Message::new("conformance.empty", "");
    let large = Message::new("conformance.large", vec![7; crate::PAYLOAD_BYTES_MAX]);
    let all = [full, empty.clone(), large];
    let batch: Vec<Outgoing> =
        all.iter().cloned().zip(1..).map(|(message, at)| Outgoing::new(message, at)).collect();
    for (result, message) in in_time("publishing", publisher.publish(&batch)).await.into_iter().zip(&all) {
        result.unwrap_or_else(|error| panic!("{message:?} was not published: {error}"));
    }
    let found = broker.read().await.expect("the broker can be read");
    for message in &all {
        let found = found.iter().find(|found| found.id() == message.id());
        assert_eq!(found, Some(message), "a message did not arrive as it was");
    }
    // A copy keeps the id: the consumer can tell.
    for result in publisher.publish(&[Outgoing::new(empty, 2)]).await {
        result.expect("a copy is no error");
    }
    assert!(publisher.publish(&[]).await.is_empty(), "no answer without a message");
}

async fn order<P: Publisher, B: Broker>(publisher: &P, broker: &mut B) {
    const TOPIC: &str = "conformance.order";
    for number in 0..50 {
        for result in publisher.publish(&["a", "b"].map(|key| numbered(TOPIC, key, number))).await {
            result.expect("it is published");
        }
    }
    check_order(broker, TOPIC, &["a", "b"], 50).await;
}

/// Every number of every key is there, first in its order; copies may follow.
async fn check_order<B: Broker>(broker: &B, topic: &str, keys: &[&str], count: usize) {
    let mut next: HashMap<String, usize> = HashMap::new();
    let mut all: HashMap<String, Vec<usize>> = HashMap::new();
    for message in broker.read().await.expect("the broker can be read") {
        if message.topic() == topic {
            let key = message.ordering_key().unwrap_or_default().to_owned();
            all.entry(key).or_default().push(number_of(&message));
        }
    }
    for (key, numbers) in &all {
        let next = next.entry(key.clone()).or_default();
        for number in numbers {
            assert!(
                number <= next,
                "{topic}: number {number} of the ordering key `{key}` is there before {next}: {numbers:?}"
            );
            *next = (*next).max(number + 1);
        }
    }
    for key in keys {
        assert_eq!(next.get(*key), Some(&count), "{topic}: what was confirmed of the ordering key `{key}`");
    }
}

/// A call that is dropped has confirmed nothing: the relay publishes the message again.
async fn lost_confirmations<P: Publisher, B: Broker>(publisher: &P, broker: &mut B) {
    const TOPIC: &str = "conformance.lost";
    let all: Vec<Outgoing> = (0..20).map(|number| numbered(TOPIC, "a", number)).collect();
    for (outgoing, pause) in all.iter().zip([0, 50, 200, 1_000].into_iter().cycle()) {
        let batch = std::slice::from_ref(outgoing);
        // It may have been sent, or not.
        let _ = tokio::time::timeout(Duration::from_micros(pause), publisher.publish(batch)).await;
        publish_all(publisher, batch).await;
    }
    check_order(broker, TOPIC, &["a"], 20).await;
    let found = broker.read().await.expect("the broker can be read");
    for message in found.iter().filter(|found| found.topic() == TOPIC) {
        let is_ours = all.iter().any(|outgoing| outgoing.message() == message);
        assert!(is_ours, "a copy differs from its message: {message:?}");
    }
}

async fn down<P: Publisher, B: Broker>(publisher: &P, broker: &mut B) {
    const TOPIC: &str = "conformance.down";
    broker.kill().await;
    let batch = ["a", "b"].map(|key| numbered(TOPIC, key, 0));
    for result in in_time("a broker that is down", publisher.publish(&batch)).await {
        let error = result.expect_err("a broker that is down confirms nothing");
        assert!(!error.to_string().is_empty() && !error.to_string().contains('\n'), "one line: {error}");
    }
    broker.start().await;
    publish_all(publisher, &batch).await;
    check_order(broker, TOPIC, &["a", "b"], 1).await;
}

/// Killed while messages are on their way.
async fn killed<P: Publisher, B: Broker>(publisher: &P, broker: &mut B) {
    const TOPIC: &str = "conformance.killed";
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    const COUNT: usize = 200;
    let publishing = async {
        for number in 0..COUNT {
            publish_all(publisher, &KEYS.map(|key| numbered(TOPIC, key, number))).await;
        }
    };
    let killing = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        broker.kill().await;
        broker.start().await;
    };
    tokio::join!(publishing, killing);
    // And once more: nothing that was confirmed may live in memory only.
    broker.kill().await;
    broker.start().await;
    check_order(broker, TOPIC, &KEYS, COUNT).await;
}
