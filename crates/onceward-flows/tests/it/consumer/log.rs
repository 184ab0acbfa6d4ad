//! A source in memory: one partition, with deliveries that a test makes.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use onceward::{Error, ErrorKind};
use onceward_flows::{Delivery, HandledMessage, Message, Reader, Source, SourceFuture};
use tokio::sync::Notify;

#[derive(Clone)]
pub(crate) struct Log {
    name: &'static str,
    state: Arc<Mutex<State>>,
    added: Arc<Notify>,
}

#[derive(Default)]
pub(crate) struct State {
    deliveries: Vec<Delivery>,
    /// Positions that the source was told are handled.
    pub(crate) handled: Vec<i64>,
    /// How often that fails before it goes well.
    pub(crate) failures: usize,
    /// Whether a reader waits for more: everything before was delivered.
    pub(crate) is_read_out: bool,
}

impl Log {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, state: Arc::default(), added: Arc::default() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn add(&self, message: Message) {
        self.add_with(message, |delivery| delivery);
    }

    /// One that cannot be handled as it came.
    pub(crate) fn add_faulty(&self, message: Message, fault: &str) {
        self.add_with(message, |mut delivery| {
            delivery.fault = Some(fault.to_owned());
            delivery
        });
    }

    /// One with its number in the outbox that it came from.
    pub(crate) fn add_numbered(&self, message: Message, number: i64) {
        self.add_with(message, |delivery| delivery.with_number(number));
    }

    /// One whose publisher has given no id: that of the message is its place.
    pub(crate) fn add_without_id(&self, message: Message) {
        self.add_with(message, Delivery::with_derived_id);
    }

    fn add_with(&self, message: Message, change: impl FnOnce(Delivery) -> Delivery) {
        let mut state = self.state();
        let delivery = Delivery::new(message, i64::try_from(state.deliveries.len()).unwrap() + 1);
        state.deliveries.push(change(delivery));
        state.is_read_out = false;
        drop(state);
        self.added.notify_waiters();
    }
}

impl Source for Log {
    fn name(&self) -> &str {
        self.name
    }

    fn partitions(&self) -> u32 {
        1
    }

    fn check(&self, _: Option<Duration>) -> SourceFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn open(&self, _: u32, after: i64) -> SourceFuture<'_, Box<dyn Reader>> {
        let reader = LogReader { log: self.clone(), next: usize::try_from(after).unwrap() };
        Box::pin(std::future::ready(Ok(Box::new(reader) as Box<dyn Reader>)))
    }

    fn handled<'a>(&'a self, messages: &'a [HandledMessage]) -> SourceFuture<'a, ()> {
        let mut state = self.state();
        let told = if state.failures > 0 {
            state.failures -= 1;
            Err(Error::new(ErrorKind::Unavailable, "the source is away"))
        } else {
            state.handled.extend(messages.iter().map(|message| message.position));
            Ok(())
        };
        Box::pin(std::future::ready(told))
    }
}

struct LogReader {
    log: Log,
    next: usize,
}

impl Reader for LogReader {
    fn next(&mut self) -> SourceFuture<'_, Delivery> {
        Box::pin(async {
            loop {
                let added = self.log.added.clone();
                let notified = added.notified();
                let found = {
                    let mut state = self.log.state();
                    state.is_read_out |= self.next == state.deliveries.len();
                    state.deliveries.get(self.next).cloned()
                };
                if let Some(delivery) = found {
                    self.next += 1;
                    return Ok(delivery);
                }
                notified.await;
            }
        })
    }
}
