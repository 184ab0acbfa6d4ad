//! The conformance suites see what they are for: a broker in memory passes, and each of its broken variants is caught.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use onceward::{Error, ErrorKind, Result};
use onceward_flows::conformance::{self, Broker};
use onceward_flows::{
    Delivery, HandledMessage, Message, Outgoing, PublishFuture, Publisher, Reader, Source, SourceFuture,
};

const PARTITIONS: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    // Publishers.
    ConfirmsUnkept,
    ConfirmsWhileDown,
    WaitsWhileDown,
    LosesOnKill,
    DropsHeaders,
    OtherIdForCopies,
    SwapsTwo,
    // Sources.
    SkipsWhenOpened,
    TakesAway,
    LosesWhatIsDropped,
    OtherIdsEachTime,
    FailsOnMalformed,
    PositionsRestart,
    WrongPartition,
    TrimsUpToHandled,
}

use Broken::*;

#[derive(Default)]
struct State {
    partitions: [Vec<Message>; PARTITIONS as usize],
    /// Before a kill the last ones are in memory only.
    since_start: usize,
    is_down: bool,
    starts: i64,
    ids: HashSet<String>,
    taken: HashSet<String>,
    /// Everything up to this position is gone.
    trimmed: i64,
}

#[derive(Clone)]
struct Memory {
    state: Arc<Mutex<State>>,
    broken: Broken,
}

impl Memory {
    fn new(broken: Broken) -> Self {
        Self { state: Arc::default(), broken }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn publish_one(&self, outgoing: &Outgoing) -> Result<()> {
        let mut state = self.state();
        if state.is_down {
            let down = Error::new(ErrorKind::Unavailable, "the broker is down");
            return if self.broken == ConfirmsWhileDown { Ok(()) } else { Err(down) };
        }
        state.since_start += 1;
        if self.broken == ConfirmsUnkept && state.since_start.is_multiple_of(7) {
            return Ok(());
        }
        let mut message = outgoing.message().clone();
        if self.broken == DropsHeaders {
            let bare = Message::new(message.topic(), message.payload().clone()).with_id(message.id());
            message = match message.ordering_key() {
                Some(key) => bare.with_ordering_key(key),
                None => bare,
            };
        }
        let is_copy = !state.ids.insert(message.id().to_owned());
        if self.broken == OtherIdForCopies && is_copy {
            message = message.with_id("another");
        }
        let mut partition = outgoing.partition(PARTITIONS);
        if self.broken == WrongPartition {
            partition = (partition + 1) % PARTITIONS;
        }
        let log = &mut state.partitions[partition as usize];
        log.push(message);
        if self.broken == SwapsTwo && log.len().is_multiple_of(10) {
            let len = log.len();
            log.swap(len - 1, len - 3);
        }
        Ok(())
    }
}

impl Publisher for Memory {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        Box::pin(async move {
            while self.broken == WaitsWhileDown && self.state().is_down {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(Duration::from_micros(100)).await;
            batch.iter().map(|outgoing| self.publish_one(outgoing)).collect()
        })
    }
}

impl Broker for Memory {
    async fn read(&self) -> Result<Vec<Message>> {
        Ok(self.state().partitions.concat())
    }

    async fn kill(&mut self) {
        let mut state = self.state();
        state.is_down = true;
        if self.broken == LosesOnKill {
            for log in &mut state.partitions {
                let kept = log.len().saturating_sub(3);
                log.truncate(kept);
            }
        }
        state.since_start = 0;
    }

    async fn start(&mut self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut state = self.state();
        state.is_down = false;
        state.starts += 1;
    }

    async fn write_malformed(&mut self, partition: u32) -> Vec<Bytes> {
        let log = &mut self.state().partitions[partition as usize];
        log.push(Message::new("t", "no id").with_id(""));
        log.push(Message::new("t", "bad id").with_id("a b"));
        vec!["no id".into(), "bad id".into()]
    }
}

impl Source for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn partitions(&self) -> u32 {
        PARTITIONS
    }

    fn check(&self, _: Option<Duration>) -> SourceFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn open(&self, partition: u32, after: i64) -> SourceFuture<'_, Box<dyn Reader>> {
        let jump = i64::from(self.broken == SkipsWhenOpened && after > 0);
        let reader = MemoryReader { memory: self.clone(), partition, after: after + jump };
        Box::pin(std::future::ready(Ok(Box::new(reader) as Box<dyn Reader>)))
    }

    fn handled<'a>(&'a self, messages: &'a [HandledMessage]) -> SourceFuture<'a, ()> {
        if self.broken == TrimsUpToHandled {
            let highest = messages.iter().map(|message| message.position).max().unwrap_or(0);
            let mut state = self.state();
            state.trimmed = state.trimmed.max(highest);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

struct MemoryReader {
    memory: Memory,
    partition: u32,
    after: i64,
}

impl MemoryReader {
    fn at(&mut self, index: usize) -> Option<Result<Delivery>> {
        let broken = self.memory.broken;
        let mut state = self.memory.state();
        if state.is_down {
            return Some(Err(Error::new(ErrorKind::Unavailable, "the broker is down")));
        }
        let message = state.partitions[self.partition as usize].get(index)?.clone();
        if i64::try_from(index).unwrap() < state.trimmed {
            self.after += 1;
            return None;
        }
        if broken == TakesAway && !state.taken.insert(message.id().to_owned()) {
            self.after += 1;
            return None;
        }
        let mut delivery = Delivery::new(message, i64::try_from(index).unwrap() + 1);
        if delivery.fault.is_some() {
            if broken == FailsOnMalformed {
                return Some(Err(Error::new(ErrorKind::Damaged, "a malformed message")));
            }
            let place = format!("memory:{}:{index}", self.partition);
            let kept = Message::new("unknown", delivery.message.payload().clone());
            delivery.message = if broken == OtherIdsEachTime { kept } else { kept.with_id(place) };
        }
        self.after += 1;
        if broken == PositionsRestart {
            delivery.position -= 20 * state.starts;
        }
        Some(Ok(delivery))
    }
}

impl Reader for MemoryReader {
    fn next(&mut self) -> SourceFuture<'_, Delivery> {
        Box::pin(async {
            loop {
                let index = usize::try_from(self.after).unwrap();
                if let Some(delivery) = self.at(index) {
                    if self.memory.broken == LosesWhatIsDropped {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    return delivery;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    }
}

/// For the tests of a broker: its source reads the number that its publisher writes.
pub(crate) async fn check_numbers(source: &impl Source, publisher: &impl Publisher) {
    let message = Message::new("orders.numbered", "").with_ordering_key("numbered");
    let outgoing = Outgoing::new(message, 4_711);
    while publisher.publish(std::slice::from_ref(&outgoing)).await.iter().any(Result::is_err) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut reader = source.open(outgoing.partition(source.partitions()), 0).await.unwrap();
    let number = loop {
        let delivery = reader.next().await.unwrap();
        if delivery.message.id() == outgoing.message().id() {
            break delivery.number;
        }
    };
    assert_eq!(number, Some(4_711));
}

/// Runs a suite and returns what it says.
async fn outcome(suite: &str, broken: Broken) -> Result<(), String> {
    let memory = Memory::new(broken);
    let mut killed = memory.clone();
    let running = async {
        match suite {
            "publisher" => conformance::publisher(&memory, &mut killed).await,
            _ => conformance::source(&memory, &memory, &mut killed).await,
        }
    };
    std::panic::AssertUnwindSafe(running).catch_unwind().await.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// In time that does not pass, so that waiting forever takes no time.
#[tokio::test(start_paused = true)]
async fn each_broken_variant_is_caught_and_the_sound_one_is_not() {
    for suite in ["publisher", "source"] {
        assert_eq!(outcome(suite, Nothing).await, Ok(()), "{suite}");
    }
    let rows = [
        ("publisher", ConfirmsUnkept, "number"),
        ("publisher", ConfirmsWhileDown, "confirms nothing"),
        ("publisher", WaitsWhileDown, "no end after"),
        ("publisher", LosesOnKill, "conformance.killed"),
        ("publisher", DropsHeaders, "did not arrive as it was"),
        ("publisher", OtherIdForCopies, "a copy differs from its message"),
        ("publisher", SwapsTwo, "is there before"),
        ("source", SkipsWhenOpened, "messages of partition"),
        ("source", TakesAway, "messages of partition"),
        ("source", LosesWhatIsDropped, "a message that comes later"),
        ("source", OtherIdsEachTime, "the same ids"),
        ("source", FailsOnMalformed, "is no error"),
        ("source", PositionsRestart, "positions grow"),
        // Either it has too few messages, or others.
        ("source", WrongPartition, "partition 0"),
        ("source", TrimsUpToHandled, "after a handover"),
    ];
    for (suite, broken, text) in rows {
        let said = outcome(suite, broken).await.expect_err(&format!("{broken:?} was not caught"));
        println!("{broken:?}: {said}");
        assert!(said.contains(text), "{broken:?} was caught for another reason: {said}");
    }
}
