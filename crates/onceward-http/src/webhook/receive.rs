//! The path of one event: its signature, then its receipts.
//!
//! ```text
//! verified ─▶ id of the event (and a digest of its content, where the id is not signed)
//!   passed on     one intent under both ids: claimed in their order, so that whatever is recorded under one is done
//!   stored first  the digest points to the id that came with it first, and the event is enqueued under that id
//! ```
//!
//! Stored first, there are two records, the pointer and the event. The pointer is written first. After a crash in between,
//! the next request with the same content, under its own id or another one, finds the pointer and stores the event under the id that
//! it names: nothing is lost, and nothing is stored under two ids.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use onceward::receipt::{Done, Status};
use onceward::{
    Answer, Ask, Enqueued, Fingerprint, OnDuplicate, OnUnknown, Outcome, Policy, Refusal, Result, State,
};
use tower_service::Service;

use super::{Event, Receiver, StoreFirst, StoredEvent};
use crate::answer;
use crate::body::BoxError;
use crate::fingerprint::{self, Fingerprints, Head};
use crate::guard;
use crate::intent_future::{ResponseSlot, ServiceResult};
use crate::layer::LayerState;
use crate::problem::Problem;
use crate::request_body::WaitingRequest;
use crate::request_fields::RequestFields;
use crate::run;
use crate::scope::CallerHead;
use crate::secret_rotation::{Asks, Ids};

/// How long a copy waits while the pointer of its content is written: a moment.
const POINTER_WAIT: Duration = Duration::from_secs(5);

/// A verified event with its ids.
pub(crate) struct Received {
    event: Event,
    ids: Ids,
    /// Its ids by its content, where its sender signs only the body.
    content: Option<Ids>,
    prints: Fingerprints,
}

/// Verifies an event. A refusal comes before anything is looked up.
pub(crate) fn verify(
    shared: &LayerState,
    receiver: &Receiver,
    parts: &Parts,
    body: &[u8],
) -> Result<Received, Problem> {
    shared.metrics.guarded.one();
    let event = receiver
        .verifier
        .verify(&parts.headers, body, SystemTime::now())
        .map_err(|bad| Problem::SignatureRefused(bad.to_string()))?;
    let fields = RequestFields::of(&parts.headers);
    let ids = guard::ids_of_request(shared, parts, fields, event.key())?;
    let content = content_ids(shared, parts, fields, &event, body)?;
    let head = Head::of(parts, fields).with_forwarded_host(parts.extensions.get());
    let prints = fingerprint::fingerprints(&shared.route.fingerprint, &shared.secrets, &head, body);
    Ok(Received { event, ids, content, prints })
}

/// The ids of an event by its content: the digest is keyed with each secret.
fn content_ids(
    shared: &LayerState,
    parts: &Parts,
    fields: RequestFields,
    event: &Event,
    body: &[u8],
) -> Result<Option<Ids>, Problem> {
    let head = CallerHead {
        uri: &parts.uri,
        headers: &parts.headers,
        fields,
        caller: parts.extensions.get(),
        forwarded_host: parts.extensions.get(),
    };
    let mut ids: Option<Ids> = None;
    for (at, secret) in shared.secrets.all().enumerate() {
        let Some(key) = event.content_key(secret, body) else { return Ok(None) };
        let (id, caller) = shared.route.identity.id(&parts.method, head, &key, secret)?;
        match &mut ids {
            Some(ids) => ids.also(at, (id, caller)),
            None => ids = Some(Ids::new(id, caller)),
        }
    }
    Ok(ids)
}

/// Passes an event on, or stores it.
pub(crate) async fn run<S, I, B>(
    slot: Arc<ResponseSlot<B>>,
    waiting: Box<WaitingRequest<S>>,
    received: Received,
) -> Option<ServiceResult<B, S::Error>>
where
    S: Service<Request<I>, Response = Response<B>> + Send,
    S::Future: Send,
    S::Error: Send,
    I: From<Bytes> + Send,
    B: Body<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let shared = slot.in_flight.shared().clone();
    let store_first = shared.route.webhook.as_ref().and_then(|receiver| receiver.store_first.clone());
    if let Some(store_first) = store_first {
        let stored = store(&shared, &store_first, &waiting.parts, waiting.body.clone(), received).await;
        return Some(Ok(match stored {
            Ok(Ok(())) => answer::empty(store_first.status),
            Ok(Err(problem)) => answer::refuse(&shared, problem),
            Err(error) => answer::of_error(&shared, &error),
        }));
    }
    let Received { mut ids, content, prints, .. } = received;
    if let Some(content) = content {
        ids.join(content);
    }
    let known: Vec<Fingerprint> =
        std::iter::once(prints.current).chain(prints.older.iter().copied()).collect();
    let asks = ids.ask(|_| prints.clone(), &shared.route.policy);
    match other_body(&shared, asks, &known).await {
        Ok(OtherBody::Done) => {
            shared.metrics.events_other_body.one();
            Some(Ok(answer::empty(StatusCode::OK)))
        }
        Ok(OtherBody::No(asks)) => run::run::<S, I, B>(slot, waiting, *asks, None).await,
        Err(error) => Some(Ok(answer::of_error(&shared, &error))),
    }
}

enum OtherBody {
    /// The event was done with another body: nothing is left to do about this one.
    Done,
    /// It was not. Whatever was begun with another body is the same event.
    No(Box<Asks>),
}

/// Senders change fields between tries: an event is known by its id, whatever its body is.
async fn other_body(shared: &LayerState, mut asks: Asks, known: &[Fingerprint]) -> Result<OtherBody> {
    let mut other = Vec::new();
    for ask in asks.each() {
        let Some(receipt) = shared.onceward.receipt(ask.id()).await? else { continue };
        let Some(claim) = receipt.status.claim() else { continue };
        if known.contains(&claim.fingerprint) {
            continue;
        }
        match &receipt.status {
            Status::Done(Done { .. }) if !receipt.due.is_over() => return Ok(OtherBody::Done),
            _ => other.push(claim.fingerprint),
        }
    }
    if !other.is_empty() {
        asks = asks.also_described_by(&other);
    }
    Ok(OtherBody::No(Box::new(asks)))
}

/// Stores an event for its delivery.
async fn store(
    shared: &LayerState,
    store_first: &StoreFirst,
    parts: &Parts,
    body: Bytes,
    received: Received,
) -> Result<Result<(), Problem>> {
    let Received { event, mut ids, content, prints } = received;
    let mut key = event.key().to_owned();
    if let Some(content) = content {
        key = match first_key(shared, content, &key).await? {
            Ok(first) => first,
            Err(problem) => return Ok(Err(problem)),
        };
        if key != event.key() {
            ids = match guard::ids_of_request(shared, parts, RequestFields::of(&parts.headers), &key) {
                Ok(ids) => ids,
                Err(problem) => return Ok(Err(problem)),
            };
        }
    }
    // Stored under former terms, it is stored.
    for (id, _) in ids.each().skip(1) {
        if let Some(receipt) = shared.onceward.receipt(id).await?
            && !(receipt.status.state() == State::Done && receipt.due.is_over())
        {
            if receipt.status.state() == State::Dead {
                store_first.arrivals.dead_again();
            }
            return Ok(Ok(()));
        }
    }
    let object = store_first.order_by.as_ref().and_then(|order_by| order_by.object(&parts.headers, &body));
    let arrived_us = store_first.arrivals.stamp();
    let stored = StoredEvent {
        method: parts.method.as_str().to_owned(),
        target: parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        key,
        object: object.clone(),
        arrived_us,
        redrive: 0,
        headers: parts.headers.clone(),
        body,
    };
    let ask = Ask::new(ids.current.clone(), prints.current, shared.route.policy.clone())
        .with_older_fingerprints(prints.older)
        .with_input(stored.encode());
    Ok(match shared.onceward.enqueue(ask).await? {
        Enqueued::Accepted => {
            store_first.arrivals.announce(ids.current, object, arrived_us);
            Ok(())
        }
        // It is stored, and an operator decides about it. A refusal would have its sender repeat it for days, and some
        // senders switch an endpoint off that refuses all the time.
        Enqueued::AlreadyThere(State::Dead) => {
            store_first.arrivals.dead_again();
            Ok(())
        }
        Enqueued::AlreadyThere(_) => Ok(()),
        Enqueued::Refused(Refusal::KeyReused) => {
            shared.metrics.events_other_body.one();
            Ok(())
        }
        Enqueued::Refused(_) => Err(Problem::KeyExpired),
        // Its sender delivers it again: an event is acknowledged only when it is certainly stored.
        _ => Err(Problem::StoreUnavailable),
    })
}

/// The key under which this content came first; this one, if it is the first.
async fn first_key(shared: &LayerState, content: Ids, key: &str) -> Result<Result<String, Problem>> {
    let policy: Arc<Policy> = Arc::new(
        shared
            .route
            .policy
            .to_builder()
            .with_on_duplicate(OnDuplicate::Wait(POINTER_WAIT))
            // To write a pointer again is to write the same one.
            .with_on_unknown(OnUnknown::Retry)
            .build()?,
    );
    let asks = content.ask_as(Fingerprint::of(b"the key under which this content came first"), &policy);
    let outcome = Outcome::succeeded(key.to_owned());
    let answer = if asks.is_one() {
        shared.onceward.run(asks.current, async |_| Ok(outcome)).await?
    } else {
        asks.run(&shared.onceward, async |_| Ok(outcome)).await?
    };
    Ok(match answer {
        Answer::Completed(ran) => Ok(String::from_utf8_lossy(ran.outcome.body()).into_owned()),
        Answer::Refused(Refusal::InProgress { retry_after }) => Err(Problem::InProgress { retry_after }),
        Answer::Refused(_) => Err(Problem::StoreUnavailable),
    })
}
