//! Services that wrap another and change one thing: what is compared, where the key is, how answers look.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::Value;

use super::charges::Charges;
use super::receipt_map::ReceiptMap;
use super::server::{Answering, Ask, Reply, Service};

/// Refuses a key that comes back with another body, so that a service has no mistakes but its own.
pub(super) struct Compared<S> {
    inner: S,
    asked: Mutex<HashMap<String, bytes::Bytes>>,
}

impl<S> Compared<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, asked: Mutex::default() }
    }
}

impl<S: Service> Service for Compared<S> {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        if let Ok(id) = ReceiptMap::id(&ask) {
            let mut asked = self.asked.lock().expect("nobody panics with it in hand");
            if *asked.entry(id).or_insert_with(|| ask.body.clone()) != ask.body {
                return Box::pin(async { Reply::key_reused() });
            }
        }
        self.inner.answer(ask, charges)
    }

    fn is_dropped_on_hang_up(&self) -> bool {
        self.inner.is_dropped_on_hang_up()
    }
}

/// Answers everything with 200, and says in the body what went wrong.
pub(super) struct GraphQl<S>(pub(super) S);

impl<S: Service> Service for GraphQl<S> {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(async move {
            let reply = self.0.answer(ask, charges).await;
            let code = match reply.status {
                ..400 => return reply,
                400 => "BAD_KEY",
                409 => "IN_PROGRESS",
                422 => "KEY_REUSED",
                _ => "FAILED",
            };
            Reply::plain(200, &format!(r#"{{"errors":[{{"extensions":{{"code":"{code}"}}}}]}}"#))
        })
    }
}

/// Reads the key from a member of the body.
pub(super) struct KeyInBody<S>(pub(super) S);

impl<S: Service> Service for KeyInBody<S> {
    fn answer<'a>(&'a self, mut ask: Ask, charges: &'a Charges) -> Answering<'a> {
        let mut json: Value = serde_json::from_slice(&ask.body).unwrap_or_default();
        let key = json.as_object_mut().and_then(|members| members.remove("request_id"));
        ask.key_lines = key.iter().filter_map(Value::as_str).map(|key| key.as_bytes().to_vec()).collect();
        ask.body = json.to_string().into();
        self.0.answer(ask, charges)
    }
}

/// Tells the second request of every key that there are too many of them.
pub(super) struct Throttled<S> {
    inner: S,
    seen: Mutex<HashMap<String, u32>>,
}

impl<S> Throttled<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, seen: Mutex::default() }
    }
}

impl<S: Service> Service for Throttled<S> {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        if let Ok(id) = ReceiptMap::id(&ask) {
            let mut seen = self.seen.lock().expect("nobody panics with it in hand");
            let count = seen.entry(id).or_default();
            *count += 1;
            if *count == 2 {
                let fields = vec![("retry-after", "1".to_owned())];
                return Box::pin(async { Reply { fields, ..Reply::plain(429, "too many") } });
            }
        }
        self.inner.answer(ask, charges)
    }
}

/// Gives all who are done the same answer.
pub(super) struct Alike<S>(pub(super) S);

impl<S: Service> Service for Alike<S> {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(async move {
            let reply = self.0.answer(ask, charges).await;
            if reply.status < 400 { Reply::plain(200, "done") } else { reply }
        })
    }
}

/// Reads the key from a parameter of the query.
pub(super) struct KeyInQuery<S>(pub(super) S);

impl<S: Service> Service for KeyInQuery<S> {
    fn answer<'a>(&'a self, mut ask: Ask, charges: &'a Charges) -> Answering<'a> {
        let keys = ask.query.split('&').filter_map(|part| part.strip_prefix("request_id="));
        ask.key_lines = keys.map(|key| key.replace("%20", " ").into_bytes()).collect();
        self.0.answer(ask, charges)
    }
}

/// Runs what has no key or an empty one each time.
pub(super) struct KeyOptional<S>(pub(super) S);

impl<S: Service> Service for KeyOptional<S> {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        if ask.key_lines.iter().all(Vec::is_empty) {
            return Box::pin(async move { charges.charge(&ask).await });
        }
        self.0.answer(ask, charges)
    }
}
