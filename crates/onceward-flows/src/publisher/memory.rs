//! A publisher that keeps everything in memory: for tests.

use std::collections::HashSet;
use std::future::ready;
use std::sync::{Arc, Mutex};

use onceward::{Error, ErrorKind, Result};

use super::{Outgoing, PublishFuture, Publisher};
use crate::message::Message;

/// Keeps what is published in memory. For the tests of services: clones share the same memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryPublisher(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    published: Vec<Message>,
    refused_topics: HashSet<String>,
}

impl MemoryPublisher {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything that was published, in its order.
    pub fn published(&self) -> Vec<Message> {
        self.state().published.clone()
    }

    /// Fails every message on this topic from now on, as a broker does that does not know it.
    pub fn refuse_topic(&self, topic: &str) {
        self.state().refused_topics.insert(topic.to_owned());
    }

    /// Accepts the topic again.
    pub fn accept_topic(&self, topic: &str) {
        self.state().refused_topics.remove(topic);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no panic inside")
    }
}

impl Publisher for MemoryPublisher {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        let mut state = self.state();
        let publish = |outgoing: &Outgoing| -> Result<()> {
            let message = outgoing.message();
            if state.refused_topics.contains(message.topic()) {
                let detail = format!("the topic `{}` is refused", message.topic());
                return Err(Error::new(ErrorKind::Unavailable, detail));
            }
            state.published.push(message.clone());
            Ok(())
        };
        Box::pin(ready(batch.iter().map(publish).collect()))
    }

    fn target(&self) -> String {
        "memory".to_owned()
    }
}
