//! A consumer leaves halfway, and another one takes its partitions over. Both are in memory: the queue and the
//! progress are those of the real consumer, receipts and effects are lists.

use std::collections::HashSet;

use tokio::time::Instant;

use super::super::{in_time, numbered, publish_all};
use super::{KEYS, QUIET, open, read_until};
use crate::consumer::progress::Progress;
use crate::key_queue::KeyQueue;
use crate::lane::lane_of;
use crate::message::Message;
use crate::publisher::{Outgoing, Publisher};
use crate::source::{Delivery, HandledMessage, Source};

/// How the first consumer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// It closes its reader, and hands over the position that it has reached.
    Released,
    /// It stands still with its reader open, and its last position was not recorded. Later it reads on.
    Lapsed,
}

/// What both consumers have in their database.
#[derive(Default)]
struct Database {
    receipts: HashSet<String>,
    effects: Vec<Message>,
}

struct Worker {
    progress: Progress,
    queue: KeyQueue<Delivery>,
    handled: Vec<HandledMessage>,
}

impl Worker {
    fn after(position: i64) -> Self {
        Self { progress: Progress::after(position), queue: KeyQueue::default(), handled: Vec::new() }
    }

    fn arrived(&mut self, delivery: Delivery) {
        self.progress.read(delivery.position);
        let key = delivery.message.ordering_key().unwrap_or(delivery.message.id()).to_owned();
        self.queue.push(&key, delivery);
    }

    /// Handles what may begin. With `leaves_some` every third message stays in flight, and what is behind it waits.
    fn work(&mut self, database: &mut Database, leaves_some: bool) {
        let mut taken = 0;
        while let Some((key, delivery)) = self.queue.take(Instant::now()) {
            taken += 1;
            if leaves_some && taken % 3 == 0 {
                continue;
            }
            let Delivery { message, position, .. } = delivery;
            self.handled.push(HandledMessage { lane: lane_of(&message), position });
            self.progress.handled(position);
            if database.receipts.insert(message.id().to_owned()) {
                database.effects.push(message);
            }
            self.queue.done(&key);
        }
    }
}

pub(super) async fn handed_over<S: Source, P: Publisher>(source: &S, publisher: &P) {
    for (leaves, topic) in
        [(Leaves::Released, "conformance.released"), (Leaves::Lapsed, "conformance.lapsed")]
    {
        let mut all: Vec<Outgoing> = Vec::new();
        for number in 0..20 {
            let batch = KEYS.map(|key| numbered(topic, key, number));
            publish_all(publisher, &batch).await;
            all.extend(batch);
        }
        for partition in 0..source.partitions() {
            let is_here = |outgoing: &&Outgoing| outgoing.partition(source.partitions()) == partition;
            let sent: Vec<&Message> = all.iter().filter(is_here).map(Outgoing::message).collect();
            if !sent.is_empty() {
                move_over(source, partition, leaves, &sent).await;
            }
        }
    }
}

async fn move_over<S: Source>(source: &S, partition: u32, leaves: Leaves, sent: &[&Message]) {
    let last = sent.last().expect("it has messages").id();
    let is_last =
        |deliveries: &[Delivery]| deliveries.last().is_some_and(|delivery| delivery.message.id() == last);
    let log = in_time("reading all", read_until(source, partition, 0, is_last)).await;
    let first = log.iter().position(|delivery| delivery.message.id() == sent[0].id());
    let before = first.expect("the first one is there").checked_sub(1);
    let start = before.map_or(0, |before| log[before].position);

    let mut database = Database::default();
    let mut one = Worker::after(start);
    let mut reader = open(source, partition, start).await;
    for _ in 0..sent.len() / 2 {
        let delivery = in_time("reading the first half", reader.next()).await;
        one.arrived(delivery.expect("a reader goes on"));
    }
    one.work(&mut database, true);
    in_time("telling what is handled", source.handled(&one.handled)).await.expect("the source is told");
    let (position, sleeping) = match leaves {
        Leaves::Released => (one.progress.position(), None),
        Leaves::Lapsed => (start, Some(reader)),
    };

    let mut other = Worker::after(position);
    let what = "reading behind a consumer that has left";
    let reading = in_time(what, read_until(source, partition, position, is_last));
    let waking = async {
        let Some(mut reader) = sleeping else { return };
        // What it reads has no effect any more, and must not be missing to the other.
        for _ in 0..sent.len() / 4 {
            let _ = tokio::time::timeout(QUIET, reader.next()).await;
        }
    };
    let (deliveries, ()) = tokio::join!(reading, waking);
    for delivery in deliveries {
        other.arrived(delivery);
    }
    other.work(&mut database, false);
    for key in KEYS {
        let of_key = |message: &&Message| message.ordering_key() == Some(key);
        let effects: Vec<&Message> = database.effects.iter().filter(of_key).collect();
        let sent: Vec<&Message> = sent.iter().copied().filter(of_key).collect();
        assert_eq!(effects, sent, "the effects of the ordering key `{key}` after a handover ({leaves:?})");
    }
    in_time("telling what is handled", source.handled(&other.handled)).await.expect("the source is told");
}
