//! One call of the script that swaps: what it is told, and what it answers.

use std::time::Duration;

use onceward::{Error, Id, Result, Seen, State, Swap, Swapped, Version};
use redis::{Cmd, Value};

use super::errors::CallEffect;
use super::keys;
use super::scripts::Script;
use super::store::{RedisStore, number, strange};
use super::watch;

/// A due time further away is treated as this one, over a century: scripts count in numbers with 53 bits.
const DUE_IN_US_MAX: u64 = 1 << 52;
/// How long Redis keeps a tombstone after it is due, so that a sweep removes it first.
const TOMBSTONE_KEPT_MS: &str = "3600000";

/// What the script is told once for all swaps that have it in common. Of the swaps of a batch most are claims of one
/// policy and completions of one retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    /// `None` removes.
    state: Option<u8>,
    due_in_us: Option<u64>,
    /// Whether Redis may remove it when it is long due.
    expires: bool,
    absent: bool,
    is_step: bool,
}

impl Shape {
    fn of(swap: &Swap) -> Self {
        let (record, is_step) = (swap.new.as_ref(), swap.id.is_step());
        let due_in_us = |due_in: Duration| u64::try_from(due_in.as_micros()).unwrap_or(u64::MAX);
        Self {
            state: record.map(|record| keys::letter(record.state)),
            due_in_us: record.and_then(|record| record.due_in).map(|due| due_in_us(due).min(DUE_IN_US_MAX)),
            expires: record.is_some_and(|record| record.state == State::Gone) && !is_step,
            absent: swap.seen == Seen::Absent,
            is_step,
        }
    }

    /// Adds the header of this many swaps.
    fn add(self, count: usize, command: &mut Cmd) {
        command.arg(count).arg(self.state.as_slice());
        match self.due_in_us {
            None => command.arg(""),
            Some(due_in_us) => command.arg(due_in_us),
        };
        command.arg(if self.expires { TOMBSTONE_KEPT_MS } else { "" });
        command.arg(match (self.absent, self.is_step) {
            (false, false) => "",
            (true, false) => "a",
            (false, true) => "s",
            (true, true) => "as",
        });
    }
}

/// Swaps these members of a batch, which are in one bucket, by one call. Returns the answer of each with its place in the
/// batch.
pub(super) async fn call(
    store: &RedisStore,
    batch: &[Swap],
    group: &[usize],
) -> Result<Vec<(usize, Swapped)>> {
    let mut sent: Vec<(Shape, usize)> = group.iter().map(|&at| (Shape::of(&batch[at]), at)).collect();
    // Removals last: once a script has written something, a server without memory refuses it nothing more.
    sent.sort_unstable_by_key(|&(shape, at)| (shape.state.is_none(), shape, at));
    let ids = || sent.iter().map(|&(_, at)| &batch[at].id);
    let bucket = store.keys.bucket(&batch[group[0]].id);
    let message = watch::message(ids());
    let fill = |command: &mut Cmd| {
        command.arg(sent.len());
        for id in ids() {
            command.arg(store.keys.record(id));
        }
        command.arg(store.keys.base(bucket)).arg(store.keys.channel()).arg(&message[..]);
        for alike in sent.chunk_by(|(one, _), (next, _)| one == next) {
            let (shape, _) = alike[0];
            shape.add(alike.len(), command);
            for &(_, at) in alike {
                add(&batch[at], command);
            }
        }
    };
    let answer = store.servers.call(bucket, Script::Swap, CallEffect::Writes, fill).await?;
    // Its writes may have happened: an answer that is not understood is none that the script makes.
    let answer = taken_apart(answer, sent.len()).map_err(Error::maybe_applied)?;
    let mut answers: Vec<(usize, Swapped)> =
        sent.iter().map(|&(_, at)| (at, Swapped::Won(answer.version))).collect();
    for (place, what) in answer.not_won {
        let (at, swapped) = answers.get_mut(place).ok_or_else(|| strange().maybe_applied())?;
        *swapped = not_won(store, &batch[*at].id, what, answer.now_us);
    }
    Ok(answers)
}

/// Adds what the script is told of each swap.
fn add(swap: &Swap, command: &mut Cmd) {
    if let Seen::Version(version) = swap.seen {
        command.arg(&version.0.to_be_bytes()[..]);
    }
    if swap.id.is_step() {
        command.arg(swap.id.parent().as_ref().map_or(&[][..], Id::as_bytes));
    }
    if let Some(record) = &swap.new {
        command.arg(&record.bytes[..]);
    }
}

/// What the script answers.
struct Answer {
    now_us: u64,
    /// That of all that won.
    version: Version,
    /// The places and answers of those that did not.
    not_won: Vec<(usize, Value)>,
}

/// Reads an answer to this many swaps.
fn taken_apart(answer: Value, count: usize) -> Result<Answer> {
    let Value::Array(parts) = answer else { return Err(strange()) };
    let mut parts = parts.into_iter();
    let mut next = || match parts.next() {
        Some(Value::BulkString(digits)) => number(&digits).ok_or_else(strange),
        _ => Err(strange()),
    };
    let (now_us, version) = (next()?, next()?);
    let Some(Value::Int(won)) = parts.next() else { return Err(strange()) };
    let mut not_won = Vec::with_capacity(parts.len() / 2);
    while let Some(place) = parts.next() {
        let (Value::Int(place), Some(answer)) = (place, parts.next()) else { return Err(strange()) };
        not_won.push((usize::try_from(place).map_err(|_| strange())?, answer));
    }
    let is_all = usize::try_from(won).is_ok_and(|won| won + not_won.len() == count);
    is_all.then_some(Answer { now_us, version: Version(version), not_won }).ok_or_else(strange)
}

fn not_won(store: &RedisStore, id: &Id, answer: Value, now_us: u64) -> Swapped {
    match answer {
        Value::Nil => Swapped::Lost(None),
        Value::Array(mut parts) if parts.len() == 1 => match store.found(id, parts.remove(0), now_us) {
            Ok(found) => Swapped::Lost(found),
            Err(error) => Swapped::Failed(error),
        },
        answer => Swapped::Failed(store.found(id, answer, now_us).err().unwrap_or_else(strange)),
    }
}
