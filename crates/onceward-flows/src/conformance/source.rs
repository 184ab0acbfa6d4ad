//! The suite for sources.

mod handover;

use std::collections::HashMap;
use std::time::Duration;

use super::{Broker, in_time, numbered, publish_all};
use crate::message::Message;
use crate::publisher::{Outgoing, Publisher};
use crate::source::{Delivery, Reader, Source};

const TOPIC: &str = "conformance.source";
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// How long a reader that has nothing to read is watched.
const QUIET: Duration = Duration::from_millis(300);

/// Tests a source against its real broker, which it kills and starts again. `publisher` publishes to it; nothing is
/// there yet. Panics with what is wrong.
///
/// * Every message arrives with everything that it has, in its partition, in the order of its key.
/// * A log: read again from any position it is the same, with the same positions, for any number of readers. That is
///   what follows a lost acknowledgement, a consumer that died, and partitions that changed hands.
/// * A reader at the end waits, and loses nothing if its future is dropped.
/// * A consumer leaves halfway and another one takes its partitions over: every message is handled once, in the order
///   of its key. The first one has closed its readers, or stands still and continues to read.
/// * A message that cannot be handled arrives as one, with an id that is the same each time, and holds up nothing.
/// * A broker that is killed makes a reader fail or wait; behind its position everything comes, and nothing twice.
pub async fn source<S: Source, P: Publisher, B: Broker>(source: &S, publisher: &P, broker: &mut B) {
    assert!(!source.name().is_empty() && source.partitions() > 0, "a source has a name and partitions");
    in_time("the check", source.check(None)).await.expect("the source fits");
    let log = whole(source, publisher).await;
    again(source, &log).await;
    waiting(source, publisher, &log).await;
    handover::handed_over(source, publisher).await;
    malformed(source, publisher, broker).await;
    killed(source, publisher, broker).await;
}

/// The deliveries of each partition.
type Log = HashMap<u32, Vec<Delivery>>;

async fn open<S: Source>(source: &S, partition: u32, after: i64) -> Box<dyn Reader> {
    in_time("opening a partition", source.open(partition, after)).await.expect("a partition can be opened")
}

/// The next `count` messages behind a position.
async fn read<S: Source>(source: &S, partition: u32, after: i64, count: usize) -> Vec<Delivery> {
    let what = format!("reading {count} messages of partition {partition}");
    in_time(&what, read_until(source, partition, after, |deliveries| deliveries.len() >= count)).await
}

/// The messages behind a position. A reader that fails is opened again, as a consumer does it.
async fn read_until<S: Source>(
    source: &S,
    partition: u32,
    mut after: i64,
    is_enough: impl Fn(&[Delivery]) -> bool,
) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    loop {
        if let Ok(mut reader) = source.open(partition, after).await {
            while !is_enough(&deliveries)
                && let Ok(delivery) = reader.next().await
            {
                let position = delivery.position;
                assert!(position > after, "positions grow: {position} came after {after}");
                after = position;
                deliveries.push(delivery);
            }
        }
        if is_enough(&deliveries) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    deliveries
}

async fn whole<S: Source, P: Publisher>(source: &S, publisher: &P) -> Log {
    let mut all: Vec<Outgoing> = Vec::new();
    for number in 0..20 {
        let batch = KEYS.map(|key| numbered(TOPIC, key, number));
        publish_all(publisher, &batch).await;
        all.extend(batch);
    }
    let special = [
        Message::new("conformance.full", vec![0, 1, 13, 10, 255])
            .with_ordering_key("Müller & Söhne")
            .with_header("trace", "00-ä ö"),
        Message::new("conformance.empty", ""),
        Message::new("conformance.large", vec![7; crate::PAYLOAD_BYTES_MAX]),
    ]
    .map(|message| Outgoing::new(message, 1_000));
    publish_all(publisher, &special).await;
    all.extend(special);
    let mut log = Log::new();
    for partition in 0..source.partitions() {
        let is_here = |outgoing: &&Outgoing| outgoing.partition(source.partitions()) == partition;
        let expected: Vec<&Outgoing> = all.iter().filter(is_here).collect();
        let deliveries = read(source, partition, 0, expected.len()).await;
        for outgoing in &expected {
            let message = outgoing.message();
            let found = deliveries.iter().find(|delivery| delivery.message.id() == message.id());
            let found = found.unwrap_or_else(|| panic!("{message:?} is not in partition {partition}"));
            assert_eq!(&found.message, message, "a message did not arrive as it was");
            assert_eq!(found.fault, None, "{message:?}");
            let is_its_number = found.number.is_none_or(|number| number == outgoing.position());
            assert!(is_its_number, "{message:?} came with the number {:?}", found.number);
        }
        for key in KEYS {
            let of_key = |message: &Message| message.ordering_key() == Some(key);
            let came = deliveries.iter().map(|delivery| &delivery.message).filter(|message| of_key(message));
            let sent = expected.iter().map(|outgoing| outgoing.message()).filter(|message| of_key(message));
            assert!(came.eq(sent), "the order of the ordering key `{key}`");
        }
        log.insert(partition, deliveries);
    }
    log
}

fn places(deliveries: &[Delivery]) -> Vec<(i64, &str)> {
    deliveries.iter().map(|delivery| (delivery.position, delivery.message.id())).collect()
}

async fn again<S: Source>(source: &S, log: &Log) {
    for (&partition, deliveries) in log.iter().filter(|(_, deliveries)| !deliveries.is_empty()) {
        // Two at a time: nothing of one reader is taken away from the other.
        let count = deliveries.len();
        let (one, two) = tokio::join!(read(source, partition, 0, count), read(source, partition, 0, count));
        assert_eq!(places(&one), places(deliveries), "partition {partition}, read again");
        assert_eq!(places(&two), places(deliveries), "partition {partition}, read by another");
        let half = count / 2;
        let rest = read(source, partition, deliveries[half].position, count - half - 1).await;
        assert_eq!(places(&rest), places(&deliveries[half + 1..]), "partition {partition} from halfway on");
    }
    in_time("telling what is handled", source.handled(&[])).await.expect("nothing was handled");
}

async fn waiting<S: Source, P: Publisher>(source: &S, publisher: &P, log: &Log) {
    let outgoing = numbered("conformance.waiting", "a", 0);
    let partition = outgoing.partition(source.partitions());
    let last = log[&partition].last().expect("the key `a` has messages").position;
    let mut reader = open(source, partition, last).await;
    for _ in 0..2 {
        let nothing = tokio::time::timeout(QUIET, reader.next()).await;
        assert!(nothing.is_err(), "there is nothing to read, and yet: {nothing:?}");
    }
    publish_all(publisher, std::slice::from_ref(&outgoing)).await;
    // The futures are dropped again and again until it comes.
    let reading = async {
        loop {
            if let Ok(delivery) = tokio::time::timeout(Duration::from_millis(20), reader.next()).await {
                break delivery.expect("the reader goes on");
            }
        }
    };
    let delivery = in_time("a message that comes later", reading).await;
    assert_eq!(&delivery.message, outgoing.message(), "what came later");
    assert!(delivery.position > last, "positions grow");
}

async fn malformed<S: Source, P: Publisher, B: Broker>(source: &S, publisher: &P, broker: &mut B) {
    let good = numbered("conformance.malformed", "a", 0);
    let partition = good.partition(source.partitions());
    let written = broker.write_malformed(partition).await;
    publish_all(publisher, std::slice::from_ref(&good)).await;
    // All up to the good one, twice.
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut reader = open(source, partition, 0).await;
        let mut deliveries = Vec::new();
        let reading = async {
            loop {
                let delivery: Delivery = reader.next().await.expect("a malformed message is no error");
                let is_good = delivery.message.id() == good.message().id();
                deliveries.push(delivery);
                if is_good {
                    break;
                }
            }
        };
        in_time("a message behind malformed ones", reading).await;
        let malformed = deliveries.split_off(deliveries.len() - 1 - written.len());
        for (delivery, payload) in malformed.iter().zip(&written) {
            assert_eq!(delivery.message.payload(), payload, "a malformed message keeps its payload");
            assert!(
                delivery.message.check().is_ok(),
                "what is left of a malformed message is within all bounds"
            );
        }
        seen.push(malformed);
    }
    assert_eq!(
        places(&seen[0]),
        places(&seen[1]),
        "malformed messages have the same ids whenever they are read"
    );
    if !written.is_empty() {
        assert!(seen[0].iter().any(|delivery| delivery.fault.is_some()), "one of them is out of bounds");
    }
}

/// Killed while messages are written and read.
async fn killed<S: Source, P: Publisher, B: Broker>(source: &S, publisher: &P, broker: &mut B) {
    const KILLED: &str = "conformance.killed";
    const COUNT: usize = 150;
    let partition = numbered(KILLED, "a", 0).partition(source.partitions());
    let all: Vec<Outgoing> = (0..COUNT).map(|number| numbered(KILLED, "a", number)).collect();
    let publishing = async {
        for outgoing in &all {
            publish_all(publisher, std::slice::from_ref(outgoing)).await;
        }
    };
    let last = all[COUNT - 1].message().id();
    let is_last =
        |deliveries: &[Delivery]| deliveries.last().is_some_and(|last_read| last_read.message.id() == last);
    let reading = in_time("reading what is written", read_until(source, partition, 0, is_last));
    let killing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        broker.kill().await;
        broker.start().await;
    };
    let ((), read, ()) = tokio::join!(publishing, reading, killing);
    // Copies may be among them.
    let mut found: Vec<Message> = Vec::new();
    for message in read.into_iter().map(|delivery| delivery.message) {
        if message.topic() == KILLED && !found.contains(&message) {
            found.push(message);
        }
    }
    let sent: Vec<&Message> = all.iter().map(Outgoing::message).collect();
    assert!(found.iter().eq(sent), "the messages around a kill: {found:?}");
}
