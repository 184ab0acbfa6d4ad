//! Acquires the right to run an ask, or finds its answer: in the cache, in the flights of this process, or in the
//! store. Shared by runs and transactions; the [`Claimant`] defines how a claim is written.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::answer_without_run::{WaitDeadline, answer, cached_answer, contended, refuse, wait_here};
use super::claim_guard::ClaimGuard;
use super::former_steps::{forget_steps, is_due_step, is_of_previous_life};
use super::front::answer_from_front;
use super::front_follow::{can_follow, follow_run};
use super::group_commit::Urgency;
use super::in_flight::{AttemptSource, Flight, FlightRole, Renewal, RunningLease};
use super::inner::Inner;
use super::sealed::{open, open_any, seal_claim};
use super::timeout::{First, first_of, within};
use super::unknown_log;
use crate::ask::Ask;
use crate::codec::FENCE_IS_VERSION;
use crate::decide::{Decision, Refusal, Takeover};
use crate::error::{Applied, Error, PriorReceipt, Result};
use crate::id::Id;
use crate::join::Fault;
use crate::receipt::{Attempt, Fence, Held, Owner, Prior, Receipt, Status};
use crate::store::{Due, Seen, Swap, Swapped, Version};
use crate::transition::{self, Write};

/// The result of [`acquire`].
pub(crate) enum Acquired {
    /// The lease is ours; the work may begin.
    Run(ClaimGuard),
    /// There is an answer already.
    Answer(Answer),
}

/// Each round that does not settle an ask means that another caller changed the same id in
/// between. This many in a row mean that something is broken.
pub(crate) const ROUNDS_MAX: usize = 1_000;

/// Claims an intent in the store on behalf of all asks for it in this process, and defines how the claim is written.
pub(crate) trait Claimant {
    /// Writes a claim, and says when the store was asked.
    fn write(&mut self, claim: Swap) -> impl Future<Output = (Duration, Result<Swapped, Fault>)>;

    /// Undoes what writing has begun, before a wait or an answer.
    fn abort_write(&mut self) -> impl Future<Output = ()>;

    /// The flight that the other asks of this process wait for.
    fn flight(&self) -> &Arc<Flight>;

    /// Whether a claim of ours may be in the store although we do not hold its lease.
    fn claim_may_exist(&self) -> bool;

    /// A receipt was found that is ours.
    fn found_own(&mut self);

    /// What kind of owner the claim is for.
    fn owner(&self) -> Owner;

    /// Whether the claim is a lease by itself, which ends; and may be found again after its answer was lost.
    /// In a transaction it is not: it is committed or rolled back with it.
    const IS_LEASE: bool;
}

/// What the store says to an ask.
pub(crate) enum Granted {
    /// The lease is ours; and whether it was taken over from another claim.
    Run(RunningLease, bool),
    /// The answer, and the receipt behind it for the asks that wait. Boxed, to keep the future of a run small.
    Answer(Answer, Option<Box<Receipt>>),
    /// The database undid the claim: the same again makes sense.
    Undone(Error),
}

/// Gets an ask to the point where its work may begin, or to its answer. Dropping this releases
/// what it had claimed.
///
/// Here and below, what is rarely waited for is boxed: the future of a run is as large as the largest of its waits.
pub(crate) async fn acquire(inner: &Arc<Inner>, ask: &mut Ask, owner: Owner) -> Result<Acquired> {
    check_input(inner, ask)?;
    let mut deadline = WaitDeadline::default();
    for _ in 0..ROUNDS_MAX {
        // Each thing by itself: what a `match` looks at is kept while its arms wait.
        let flight = match join_flight(inner, ask, &mut deadline).await? {
            JoinResult::Answer(answer) => return Ok(Acquired::Answer(answer)),
            JoinResult::LookAgain => continue,
            JoinResult::Leader(flight) => flight,
        };
        let mut guard = ClaimGuard::new(inner.clone(), flight, owner);
        if inner.front.is_some()
            && let Some((answer, receipt)) = Box::pin(answer_from_front(inner, ask, &mut deadline)).await
        {
            guard.end(Some(receipt));
            return Ok(Acquired::Answer(answer));
        }
        return match claim_from_store(inner, ask, &mut guard, &mut deadline).await {
            Ok(Granted::Run(running, took_over)) => {
                guard.claimed(running, took_over);
                Ok(Acquired::Run(guard))
            }
            Ok(Granted::Answer(answer, receipt)) => {
                guard.end(receipt.map(|receipt| *receipt));
                Ok(Acquired::Answer(answer))
            }
            Ok(Granted::Undone(error)) | Err(error) => Err(guard.fail(error)),
        };
    }
    Err(contended())
}

/// What an ask finds in this process.
pub(crate) enum JoinResult {
    Answer(Answer),
    /// No other ask of this process is in flight for it: this one claims it in the store, for all.
    Leader(Arc<Flight>),
    /// Another ask has ended without an answer for this one: look again.
    LookAgain,
}

/// Answers from this process if it can, and otherwise says whether this ask is the one that claims in the store.
pub(crate) async fn join_flight(
    inner: &Inner,
    ask: &mut Ask,
    deadline: &mut WaitDeadline,
) -> Result<JoinResult> {
    // Once: after a wait there may be an answer.
    if !std::mem::take(&mut ask.not_cached)
        && let Some(answer) = cached_answer(inner, ask)
    {
        return Ok(JoinResult::Answer(answer));
    }
    let named = if ask.named { AttemptSource::ByCaller } else { AttemptSource::ByEngine };
    let attempt = *ask.attempt.get_or_insert_with(|| Attempt(inner.runtime.random()));
    match inner.flights.join(&ask.id, &ask.policy, attempt, named) {
        FlightRole::Leader(flight) => Ok(JoinResult::Leader(flight)),
        FlightRole::Waiter(flight) => {
            let waited = Box::pin(wait_here(inner, ask, &flight, deadline)).await?;
            Ok(waited.map_or(JoinResult::LookAgain, JoinResult::Answer))
        }
    }
}

pub(crate) fn check_input(inner: &Inner, ask: &Ask) -> Result<()> {
    ask.input.as_ref().map_or(Ok(()), |input| check_input_bytes(inner, input.len()))
}

pub(crate) fn check_input_bytes(inner: &Inner, bytes: usize) -> Result<()> {
    let bytes_max = inner.limits.input_bytes_max;
    if bytes > bytes_max {
        return Err(Error::invalid(format!(
            "an input of {bytes} bytes is too large; at most {bytes_max} are kept (Limits::input_bytes_max)"
        )));
    }
    Ok(())
}

/// A failure of something else than the claim, which may be in the store all the same.
fn beside_claim<C: Claimant>(claimant: &C, error: Error) -> Error {
    if claimant.claim_may_exist() { error.maybe_applied() } else { error }
}

/// Whether a due step that was found is of a previous life of its intent.
async fn is_former_step<C: Claimant>(
    inner: &Arc<Inner>,
    ask: &Ask,
    claimant: &mut C,
    found: &Receipt,
) -> Result<bool> {
    claimant.abort_write().await;
    let read = is_of_previous_life(inner, &ask.id, found).await;
    read.map_err(|error| beside_claim(claimant, error))
}

/// Removes the steps of a life that has expired, before its next one is claimed.
async fn forget_former_steps<C: Claimant>(
    inner: &Arc<Inner>,
    ask: &Ask,
    claimant: &mut C,
    found: &Receipt,
) -> Result<()> {
    // Where one transaction writes at a time, the steps could not be removed beside it.
    claimant.abort_write().await;
    let forgotten = forget_steps(inner, &ask.id, found).await;
    forgotten.map(drop).map_err(|error| beside_claim(claimant, error))
}

/// Keeps what the store has said of an intent, where it saves the next trip.
fn remember(inner: &Inner, id: &Id, receipt: &Receipt, asked_at: Duration) {
    inner.cache.keep(id, receipt, asked_at);
    if let Some(front) = &inner.front {
        front.learn(false);
        front.put(inner, id, receipt, asked_at);
    }
}

/// The next claim of an ask, and what is known of those before it.
struct NextClaim {
    seen: Seen,
    held: Held,
    /// What it takes over.
    takeover: Takeover,
    /// Whether an earlier one of ours took over another.
    took_over: bool,
    prior_receipt: PriorReceipt,
}

/// Claims an intent in the store, on behalf of all asks for it in this process.
pub(crate) async fn claim_from_store<C: Claimant>(
    inner: &Arc<Inner>,
    ask: &Ask,
    claimant: &mut C,
    deadline: &mut WaitDeadline,
) -> Result<Granted> {
    let (attempt, takeover) = (claimant.flight().attempt, Takeover::Absent);
    let mut next = NextClaim {
        seen: Seen::Absent,
        held: transition::claim(ask, attempt, claimant.owner(), takeover, None),
        takeover,
        took_over: false,
        prior_receipt: PriorReceipt::NotSeen,
    };
    for _ in 0..ROUNDS_MAX {
        let claim = seal_claim(&ask.id, next.seen, &next.held, inner.lease_in_store(&ask.policy));
        let (sent_at, reply) = claimant.write(claim).await;
        if let Ok(Swapped::Won(version)) = reply {
            inner.front.iter().for_each(|front| front.learn(true));
            next.took_over |= next.takeover.is_of_another();
            let running = lease_won(next.held, version, sent_at, &ask.policy);
            if !C::IS_LEASE || inner.now() < running.lease_ends {
                return Ok(Granted::Run(running, next.took_over));
            }
            // The answer took so long that the lease may be over: no work begins under such a lease.
            (next.takeover, next.seen, next.held) = (Takeover::Own, Seen::Version(version), running.held);
            continue;
        }
        let not_won = NotWon { sent_at, reply };
        if let Some(granted) =
            Box::pin(claim_again(inner, ask, claimant, deadline, &mut next, not_won)).await?
        {
            return Ok(granted);
        }
    }
    Err(contended())
}

/// The answer of the store to a claim that was not won, or not for certain.
struct NotWon {
    sent_at: Duration,
    reply: Result<Swapped, Fault>,
}

/// Continues after a claim that was not won: until there is an answer, or until it is worth claiming again, which gives
/// `None` and the next claim. Boxed by its caller, because nearly every claim is won.
async fn claim_again<C: Claimant>(
    inner: &Arc<Inner>,
    ask: &Ask,
    claimant: &mut C,
    deadline: &mut WaitDeadline,
    next: &mut NextClaim,
    not_won: NotWon,
) -> Result<Option<Granted>> {
    let attempt = claimant.flight().attempt;
    let sent_at = not_won.sent_at;
    let mut receipt = match not_won.reply {
        Ok(Swapped::Won(_)) => unreachable!("it was not won"),
        Ok(Swapped::Lost(found)) => open_any(found.as_ref())?,
        Err(Fault::Busy) => {
            return Ok(Some(Granted::Answer(refuse(inner, Refusal::in_progress(Due::Never)), None)));
        }
        Err(Fault::Undone(error)) => return Ok(Some(Granted::Undone(error))),
        // Never blindly again: what is there now tells whether it was us.
        Ok(Swapped::Failed(error)) | Err(Fault::Failed(error))
            if C::IS_LEASE && error.applied() == Applied::Maybe =>
        {
            Box::pin(inner.load(&ask.id)).await.map_err(|_| error)?
        }
        // A claim of ours that was to be renewed, or whose answer was lost before, may be in the store.
        Ok(Swapped::Failed(error)) | Err(Fault::Failed(error)) => {
            let error = beside_claim(claimant, error);
            return Err(if next.prior_receipt == PriorReceipt::Seen {
                error.after_receipt_seen()
            } else {
                error
            });
        }
    };
    loop {
        if let Some(receipt) = &receipt {
            next.prior_receipt = PriorReceipt::Seen;
            remember(inner, &ask.id, receipt, sent_at);
        }
        let written = next.takeover;
        let former = match receipt.as_ref().filter(|found| is_due_step(&ask.id, found)) {
            Some(found) => Box::pin(is_former_step(inner, ask, claimant, found)).await?,
            None => false,
        };
        match (decide_step(inner, ask, receipt.as_ref(), former), receipt) {
            (Decision::Run(Takeover::Own), Some(found))
                if C::IS_LEASE
                    && let Some(running) = own_lease(inner, &found, sent_at) =>
            {
                return Ok(Some(Granted::Run(running, next.took_over || written.is_of_another())));
            }
            (Decision::Run(takeover), found) => {
                if takeover == Takeover::Own {
                    // The answer to it was lost.
                    next.took_over |= written.is_of_another();
                    claimant.found_own();
                }
                if let (Takeover::Expired, Some(found)) = (takeover, &found) {
                    Box::pin(forget_former_steps(inner, ask, claimant, found)).await?;
                }
                next.held = transition::claim(ask, attempt, claimant.owner(), takeover, found.as_ref());
                next.seen = found.map_or(Seen::Absent, |found| Seen::Version(found.version));
                next.takeover = takeover;
                return Ok(None);
            }
            (Decision::Wait { at_most }, Some(found)) => {
                claimant.abort_write().await;
                match Box::pin(watch_remote(inner, ask, claimant, found, deadline, at_most)).await? {
                    Watched::Store(now) => receipt = now,
                    Watched::Front(answer, receipt) => {
                        return Ok(Some(Granted::Answer(answer, Some(receipt))));
                    }
                    Watched::TimeUp(refusal) => {
                        return Ok(Some(Granted::Answer(refuse(inner, refusal), None)));
                    }
                }
            }
            (Decision::Refuse(refusal), Some(found))
                if let Some(write) = lapsed(&refusal, &found, &ask.policy) =>
            {
                claimant.abort_write().await;
                match Box::pin(write_lapse(inner, ask, &found, write)).await {
                    Ok(now) => receipt = now,
                    // This ask is refused all the same; the next one will write it.
                    Err(_) => return Ok(Some(Granted::Answer(refuse(inner, refusal), None))),
                }
            }
            (decision, found) => {
                claimant.abort_write().await;
                let answer =
                    answer(inner, found.clone(), decision).expect("replays and refusals are answers");
                let found = found.and_then(|found| found.aged(sent_at, inner.now()));
                return Ok(Some(Granted::Answer(answer, found.map(Box::new))));
            }
        }
    }
}

/// Decides by the rules, except that a claim which this process must release counts as free. For another
/// fingerprint it does so only if the claim carries nothing that has to be kept.
pub(crate) fn decide(inner: &Inner, ask: &Ask, found: Option<&Receipt>) -> Decision {
    match inner.decide(ask, found) {
        Decision::Refuse(Refusal::KeyReused) if found.is_some_and(|found| is_remembered(&found.status)) => {
            Decision::Refuse(Refusal::KeyReused)
        }
        Decision::Wait { .. }
        | Decision::Refuse(Refusal::InProgress { .. } | Refusal::OutcomeUnknown | Refusal::KeyReused)
            if found.is_some_and(|found| inner.owed_releases.has(&ask.id, found)) =>
        {
            Decision::Run(Takeover::Owed)
        }
        decision => decision,
    }
}

/// The same, except that a step of a previous life of its intent has expired.
fn decide_step(inner: &Inner, ask: &Ask, found: Option<&Receipt>, former: bool) -> Decision {
    if former { Decision::Run(Takeover::Expired) } else { decide(inner, ask, found) }
}

/// Whether the fingerprint of a claim guards its key although its own work never began: it carries an input, or
/// what is known of earlier runs.
fn is_remembered(status: &Status) -> bool {
    status.job().is_some() || transition::run_of(status).is_some_and(|run| run.prior != Prior::Nothing)
}

/// The lease that a claim has won.
fn lease_won(mut held: Held, version: Version, sent_at: Duration, policy: &crate::Policy) -> RunningLease {
    if held.claim.fence == FENCE_IS_VERSION {
        held.claim.fence = Fence(version.0);
    }
    RunningLease::new(held, version, sent_at, policy.lease())
}

/// Our own claim, if its lease is sure to be alive; otherwise it is renewed first.
fn own_lease(inner: &Inner, found: &Receipt, asked_at: Duration) -> Option<RunningLease> {
    let (Due::In(remaining), Status::Held(held)) = (found.due, &found.status) else { return None };
    let lease_ends = asked_at + remaining.saturating_sub(inner.clock_margin);
    let running = RunningLease {
        held: held.clone(),
        version: found.version,
        lease_ends,
        renew_at: asked_at,
        renewal: Renewal::Due,
    };
    (inner.now() < lease_ends).then_some(running)
}

/// What waiting for a run in another process has come to.
enum Watched {
    /// What is in the store now.
    Store(Option<Receipt>),
    /// Its success is in the front, sealed.
    Front(Answer, Box<Receipt>),
    /// The time is up.
    TimeUp(Refusal),
}

/// Waits for a run in another process, on behalf of all asks that wait in this process: by looks at the store, which are
/// rare while the run can be followed in a front.
async fn watch_remote<C: Claimant>(
    inner: &Arc<Inner>,
    ask: &Ask,
    claimant: &C,
    found: Receipt,
    deadline: &mut WaitDeadline,
    at_most: Duration,
) -> Result<Watched> {
    let now = inner.now();
    inner.counters.waits_remote.one();
    let (due, version) = (found.due, found.version);
    if let Some(front) = &inner.front {
        front.put_hint(inner, &ask.id, due);
    }
    let watching = inner.poller.watch(inner, &ask.id, &found, can_follow(inner, &ask.id));
    claimant.flight().set_held_elsewhere(found, now);
    let Some(remaining) = deadline.remaining(now, at_most) else {
        return Ok(Watched::TimeUp(Refusal::in_progress(due)));
    };
    let answered = first_of(watching, follow_run(inner, ask, version));
    match within(&*inner.runtime, remaining, answered).await {
        Some(First::One(receipt)) => receipt.map(Watched::Store),
        Some(First::Other((answer, receipt))) => Ok(Watched::Front(answer, receipt)),
        None => Ok(Watched::TimeUp(Refusal::in_progress(due))),
    }
}

/// What a run that ended without a word becomes before an ask is refused because of it.
pub(crate) fn lapsed(refusal: &Refusal, found: &Receipt, policy: &crate::Policy) -> Option<Write> {
    match refusal {
        Refusal::OutcomeUnknown => {
            transition::lapse(found).or_else(|| transition::hold_unknown(found, policy))
        }
        Refusal::Dead { .. } => transition::exhaust(found),
        _ => None,
    }
}

/// Writes down what a lease that ended has become. Gives what is there afterwards.
async fn write_lapse(inner: &Inner, ask: &Ask, found: &Receipt, write: Write) -> Result<Option<Receipt>> {
    let seen = Seen::Version(found.version);
    match inner.swap(&ask.id, seen, Some(&write), Urgency::Required).await.result? {
        Swapped::Won(version) => {
            count_lapse(inner, &ask.id, &write.status);
            let age = crate::Age { updated: Duration::ZERO, ..found.age };
            Ok(Some(Receipt { version, due: Due::Never, age, status: write.status }))
        }
        Swapped::Lost(now) => now.as_ref().map(open).transpose(),
        Swapped::Failed(error) => Err(error),
    }
}

pub(crate) fn count_lapse(inner: &Inner, id: &Id, status: &Status) {
    unknown_log::lapsed(id, status);
    match status {
        Status::Dead(_) => inner.counters.buried.one(),
        _ => inner.counters.unknowns.one(),
    }
}
