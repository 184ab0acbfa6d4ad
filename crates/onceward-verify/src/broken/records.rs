//! Changes that a broken store makes to records when it writes or reads them.

use std::sync::Arc;

use bytes::Bytes;
use onceward::receipt::{Job, Status, Waiting};
use onceward::{Age, Due, Found, Prior, State, Swap, Version, codec};

use super::stores::StoreFlaw;

/// What a flaw makes of a swap; `None` if it leaves it as it is.
pub(super) fn changed(flaw: StoreFlaw, swap: &Swap) -> Option<Swap> {
    let mut changed = swap.clone();
    let record = changed.new.as_mut()?;
    match flaw {
        StoreFlaw::LeasesOutliveTheirWriters if record.ends_with_writer => record.ends_with_writer = false,
        StoreFlaw::TicketsEndWithTheirWriters if record.state == State::Held => {
            record.ends_with_writer = true;
        }
        StoreFlaw::CountsNoTries if record.state == State::Held => {
            let Some(Status::Held(mut held)) = read(&record.bytes, record.state) else { return None };
            let mut job = Job::clone(held.job.as_ref().filter(|job| job.started > 1)?);
            (job.started, job.finished) = (1, 0);
            held.job = Some(Arc::new(job));
            record.bytes = codec::encode(&Status::Held(held));
        }
        StoreFlaw::CutsReplacedInputs if record.state == State::Held => {
            let Some(Status::Held(mut held)) = read(&record.bytes, record.state) else { return None };
            let job = held.job.as_ref()?;
            let text = std::str::from_utf8(&job.input).ok()?;
            let (before, _) = text.split_once(" replaced ")?;
            let input = Bytes::copy_from_slice(before.as_bytes());
            let mut job = Job::clone(job);
            job.input = input;
            held.job = Some(Arc::new(job));
            record.bytes = codec::encode(&Status::Held(held));
        }
        StoreFlaw::UnknownOutcomeFreesTheKey if record.state == State::Waiting => {
            match read(&record.bytes, record.state)? {
                Status::Waiting(Waiting { prior: Prior::Unknown, job: None, .. }) => changed.new = None,
                _ => return None,
            }
        }
        _ => return None,
    }
    Some(changed)
}

/// Gives a record the input that was read before it, and remembers its own.
pub(super) fn mix_up(found: &mut Found, last: &mut Option<Bytes>) {
    let Ok(receipt) = codec::decode(found) else { return };
    let mut status = receipt.status;
    let job = match &mut status {
        Status::Waiting(waiting) => waiting.job.as_mut(),
        Status::Held(held) => held.job.as_mut(),
        _ => None,
    };
    let Some(job) = job else { return };
    let own = job.input.clone();
    let input = last.replace(own).unwrap_or_else(|| job.input.clone());
    Arc::make_mut(job).input = input;
    found.bytes = codec::encode(&status);
}

/// A record that is not in the store yet: a claim in it has no fence of its own.
fn read(bytes: &Bytes, state: State) -> Option<Status> {
    let found = Found::new(Version(0), state, Due::Never, Age::default(), bytes.clone());
    codec::decode(&found).ok().map(|receipt| receipt.status)
}
