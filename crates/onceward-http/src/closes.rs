//! `Onceward-Closes`: an undo names the intent that it undoes, and that intent is closed before the undo runs, so that a
//! late copy of it is refused.
//!
//! ```text
//! Onceward-Closes: "<key>"; operation="POST /charges"       on routes that say which operations they close
//!
//! the receipt that is named          what happens                       Onceward-Found, to the service
//!   none, or waiting                 it is closed                       absent | waiting
//!   done, or closed                  nothing                            done | closed
//!   held                             waited for, then `in-progress`     the undo is not run
//!   unknown, or dead                 `outcome-unknown`                  the undo is not run
//! ```
//!
//! The receipt of the undo comes first: a retry of an undo that is done closes nothing and gets its recorded answer.
//! An intent may be known by several ids (secrets that are rotated, former terms): what is done under one is done, and
//! what is closed is closed under all. A run claims them in the order of the ids, and so does a closing: it can close the
//! first only if no run has begun, and then none begins.

use std::time::Duration;

use http::HeaderMap;
use onceward::receipt::Status;
use onceward::{Changed, ErrorKind, Id, KEY_BYTES_MAX, OPERATION_BYTES_MAX, Onceward, Policy, Prior};

use crate::answer::SOON;
use crate::fingerprint::Caller;
use crate::headers::ONCEWARD_CLOSES;
use crate::problem::Problem;
use crate::route::Route;
use crate::scope::Scope;
use crate::secret_rotation::Ids;

/// The first and the longest pause between two looks at a run that is waited for.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What an undo closes: one intent, by all of its ids, in their order.
#[derive(Debug)]
pub(crate) struct Closing {
    ids: Vec<Id>,
}

/// What was found of an intent that an undo closes. In words of the field `Onceward-Found`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Absent,
    Waiting,
    Done,
    Closed,
}

impl Found {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Closed => "closed",
        }
    }
}

/// The operations that a route may close: 1 to 512 printable ASCII characters each, without `#`.
pub(crate) fn check_operation(operation: &str) -> Result<(), String> {
    let plain = operation.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'#');
    if operation.is_empty() || operation.len() > OPERATION_BYTES_MAX || !plain {
        return Err(format!(
            "{operation:?} is no operation that can be closed; write one as receipts name it, as in \"POST /charges\""
        ));
    }
    Ok(())
}

/// What a request closes; `None` if it closes nothing, or its route does not.
pub(crate) fn read(route: &Route, headers: &HeaderMap, undo: &Ids) -> Result<Option<Box<Closing>>, Problem> {
    if route.closes.is_empty() || !headers.contains_key(ONCEWARD_CLOSES) {
        return Ok(None);
    }
    let malformed = |why: &str| Problem::KeyMalformed(format!("the Onceward-Closes {why}"));
    let ClosesField { key, operation } = parse(headers).map_err(malformed)?;
    if !route.closes.contains(&operation) {
        return Err(malformed("names an operation that this route does not close"));
    }
    let mut ids = Vec::new();
    for (id, caller) in undo.each() {
        // A scope that many callers have would let one of them close what another one asks for.
        if caller == Caller::Anonymous
            || [Scope::ANONYMOUS, Scope::SHARED].iter().any(|scope| scope.as_str() == id.scope())
        {
            continue;
        }
        let named = Id::new(id.scope(), &operation, &key)
            .map_err(|error| malformed(&format!("cannot be used: {error}")))?;
        if !ids.contains(&named) {
            ids.push(named);
        }
    }
    if ids.is_empty() {
        return Err(Problem::ScopeMissing(
            "only a caller that is known by its credentials may close another request (Onceward-Closes)"
                .into(),
        ));
    }
    if undo.each().any(|(id, _)| ids.contains(id)) {
        return Err(malformed("names the request that it is sent with"));
    }
    ids.sort();
    Ok(Some(Box::new(Closing { ids })))
}

/// What an undo says that it undoes, in the field `Onceward-Closes`: for participants that close it themselves, in a
/// transaction of their own.
///
/// ```
/// # use onceward_http::ClosesField;
/// # let headers = http::HeaderMap::from_iter([(
/// #     onceward_http::headers::ONCEWARD_CLOSES,
/// #     http::HeaderValue::from_static("\"8e03978e\"; operation=\"POST /charges\""),
/// # )]);
/// let closes = ClosesField::read(&headers)?.expect("the field is there");
/// assert_eq!((closes.operation.as_str(), closes.key.as_str()), ("POST /charges", "8e03978e"));
/// # Ok::<(), onceward_http::Problem>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClosesField {
    /// The idempotency key of the action.
    pub key: String,
    /// The participant's name of the action.
    pub operation: String,
}

impl ClosesField {
    /// Reads the field; `None` if it is not there. Fails if it is malformed, or there more than once.
    pub fn read(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        if !headers.contains_key(ONCEWARD_CLOSES) {
            return Ok(None);
        }
        let closes = parse(headers);
        closes.map(Some).map_err(|why| Problem::KeyMalformed(format!("the Onceward-Closes {why}")))
    }
}

/// The key and the operation: a Structured Field String with one parameter.
fn parse(headers: &HeaderMap) -> Result<ClosesField, &'static str> {
    const SHAPE: &str =
        "must be a key in quotes and its operation, as in \"8e03978e\"; operation=\"POST /charges\"";
    let mut lines = headers.get_all(ONCEWARD_CLOSES).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err("is there more than once; an undo closes one request");
    };
    let item = sfv::Parser::new(line.as_bytes()).parse::<sfv::Item>().map_err(|_| SHAPE)?;
    let sfv::BareItem::String(key) = item.bare_item else { return Err(SHAPE) };
    let mut operation = None;
    for (name, value) in &item.params {
        match (name.as_str(), value) {
            ("operation", sfv::BareItem::String(text)) => operation = Some(text.as_str().to_owned()),
            _ => return Err(SHAPE),
        }
    }
    let (key, operation) = (key.as_str().to_owned(), operation.ok_or(SHAPE)?);
    if key.is_empty() || key.len() > KEY_BYTES_MAX || operation.is_empty() {
        return Err(SHAPE);
    }
    Ok(ClosesField { key, operation })
}

/// What one receipt means for a closing.
enum Step {
    Close(Found),
    Leave(Found),
    Wait(Duration),
    Unknown,
}

fn step(status: Option<&Status>, lease_left: Option<Duration>) -> Step {
    match status {
        None => Step::Close(Found::Absent),
        Some(Status::Waiting(waiting)) if waiting.prior == Prior::Unknown => Step::Unknown,
        Some(Status::Waiting(_)) => Step::Close(Found::Waiting),
        // Whose lease is over may have had its effect.
        Some(Status::Held(_)) => lease_left.map_or(Step::Unknown, Step::Wait),
        Some(Status::Done(done)) if matches!(done.end, onceward::receipt::End::Closed(_)) => {
            Step::Leave(Found::Closed)
        }
        Some(Status::Done(_) | Status::Gone(_)) => Step::Leave(Found::Done),
        Some(Status::Unknown(_) | Status::Dead(_)) => Step::Unknown,
    }
}

impl Closing {
    /// Closes the intent, or says why the undo must not run now.
    pub(crate) async fn close(&self, onceward: &Onceward, policy: &Policy) -> Result<Found, Problem> {
        let wait_max = policy.on_duplicate().wait_max().unwrap_or_default();
        let deadline = tokio::time::Instant::now() + wait_max;
        let mut pause = PAUSE_MIN;
        loop {
            match self.look_and_close(onceward, policy).await? {
                Looked::Found(found) => return Ok(found),
                Looked::Changed => {}
                Looked::Running(retry_after) => {
                    let left = deadline.saturating_duration_since(tokio::time::Instant::now());
                    if left.is_zero() {
                        return Err(Problem::InProgress { retry_after });
                    }
                    tokio::time::sleep(pause.min(left)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn look_and_close(&self, onceward: &Onceward, policy: &Policy) -> Result<Looked, Problem> {
        let mut found_before = Found::Absent;
        let (mut open, mut left, mut running) = (Vec::new(), None, None);
        for id in &self.ids {
            let receipt = onceward.receipt(id).await.map_err(|error| of_error(&error))?;
            let lease_left = receipt.as_ref().and_then(|receipt| match receipt.due {
                onceward::Due::In(left) => Some(left),
                _ => None,
            });
            match step(receipt.as_ref().map(|receipt| &receipt.status), lease_left) {
                Step::Unknown => return Err(Problem::OutcomeUnknown { retry_after: None }),
                Step::Wait(lease) => running = Some(lease),
                Step::Leave(Found::Done) => left = Some(Found::Done),
                Step::Leave(found) => left = left.or(Some(found)),
                Step::Close(found) => {
                    if found == Found::Waiting {
                        found_before = found;
                    }
                    open.push((id, receipt));
                }
            }
        }
        match (running, left) {
            (Some(lease), _) => return Ok(Looked::Running(lease)),
            // What is done under one id is done.
            (None, Some(Found::Done)) => return Ok(Looked::Found(Found::Done)),
            // A closing that was interrupted is finished.
            (None, Some(found)) => found_before = found,
            (None, None) => {}
        }
        for (id, receipt) in open {
            match onceward.close_found(id, receipt.as_ref(), policy).await {
                Ok(Changed::Applied) => {}
                Ok(Changed::NotOwner(_)) => return Ok(Looked::Changed),
                Err(error) if error.kind() == ErrorKind::Conflict => return Ok(Looked::Changed),
                Err(error) => return Err(of_error(&error)),
            }
        }
        Ok(Looked::Found(found_before))
    }
}

/// What a look at all ids has come to.
enum Looked {
    Found(Found),
    Running(Duration),
    /// Another request was quicker.
    Changed,
}

fn of_error(error: &onceward::Error) -> Problem {
    if error.kind() == ErrorKind::Overloaded {
        return Problem::Overloaded { retry_after: SOON };
    }
    tracing::error!(%error, "the store of receipts failed");
    Problem::StoreUnavailable
}

/// Whether a request without a guard would close something: it must not run without doing that.
pub(crate) fn needs_guard(route: &Route, headers: &HeaderMap) -> bool {
    !route.closes.is_empty() && headers.contains_key(ONCEWARD_CLOSES)
}

#[cfg(test)]
#[path = "closes_test.rs"]
mod tests;
