//! Every broken variant: what is wrong with it, where such a thing was seen, and what must catch it.
//!
//! Three common mistakes would be inside an engine and are made outside of this one, with the same effect: *a lost reply treated as not applied* is a store that says so (`lost-reply-not-applied`), *a
//! cached receipt served after expiry* is a cache that the caller keeps or a clock that never moves
//! (`answers-kept-for-good`, `clock-stands`), and *a waiter that runs when the record vanishes* is a caller
//! that waits by looking (`runs-when-record-vanishes`).

use super::callers::CallerFlaw;
use super::fronts::FrontFlaw;
use super::operators::OperatorFlaw;
use super::rules;
use super::runtimes::RuntimeFlaw;
use super::search::Catcher::{self, Conformance, Simulator};
use super::stores::StoreFlaw;
use super::sweeps::SweepFlaw;
use super::transactions::TransactionFlaw;
use super::workers::WorkerFlaw;
use crate::sim::variant::Rules;

/// One broken variant.
#[derive(Clone, Copy, Debug)]
pub struct Broken {
    /// The name.
    pub name: &'static str,
    /// The flaw.
    pub flaw: Flaw,
    /// The catchers, each of which must catch it.
    pub caught_by: &'static [Catcher],
    /// Its flaw.
    pub wrong: &'static str,
    /// Where that was seen: a report of it, or a common practice.
    pub seen: &'static str,
}

/// The flaw of a variant, by the part that has it.
#[derive(Clone, Copy, Debug)]
pub enum Flaw {
    /// The store.
    Store(StoreFlaw),
    /// The runtime.
    Runtime(RuntimeFlaw),
    /// The rules.
    Rules(Rules),
    /// A sweep that is not the engine's own.
    Sweep(SweepFlaw),
    /// The callers.
    Caller(CallerFlaw),
    /// The workers.
    Worker(WorkerFlaw),
    /// The transactions.
    Transactions(TransactionFlaw),
    /// The operators.
    Operator(OperatorFlaw),
    /// The use of a front.
    Front(FrontFlaw),
    /// An embedded store that answers before it has synced.
    Unsynced,
    /// An engine that does not remember which claims it must release.
    ForgetsOwed,
}

const SUITE: &[Catcher] = &[Conformance];
const SIM: &[Catcher] = &[Simulator];
const BOTH: &[Catcher] = &[Conformance, Simulator];

/// The variant of this name.
pub fn named(name: &str) -> Option<&'static Broken> {
    ALL.iter().flat_map(|rows| rows.iter()).find(|broken| broken.name == name)
}

/// All of them, in the order of the report.
pub fn all() -> impl Iterator<Item = &'static Broken> {
    ALL.iter().flat_map(|rows| rows.iter())
}

const ALL: [&[Broken]; 8] = [STORES, RULES, RUNTIMES, SWEEPS, CALLERS, WORKERS, TRANSACTIONS, FRONTS];

const fn row(
    name: &'static str,
    flaw: Flaw,
    caught_by: &'static [Catcher],
    wrong: &'static str,
    seen: &'static str,
) -> Broken {
    Broken { name, flaw, caught_by, wrong, seen }
}

const fn store(
    name: &'static str,
    flaw: StoreFlaw,
    caught_by: &'static [Catcher],
    wrong: &'static str,
    seen: &'static str,
) -> Broken {
    row(name, Flaw::Store(flaw), caught_by, wrong, seen)
}

const fn rule(name: &'static str, rules: Rules, wrong: &'static str, seen: &'static str) -> Broken {
    row(name, Flaw::Rules(rules), SIM, wrong, seen)
}

const fn runtime(name: &'static str, flaw: RuntimeFlaw, wrong: &'static str, seen: &'static str) -> Broken {
    row(name, Flaw::Runtime(flaw), SIM, wrong, seen)
}

const fn sweep(name: &'static str, flaw: SweepFlaw, wrong: &'static str, seen: &'static str) -> Broken {
    row(name, Flaw::Sweep(flaw), SIM, wrong, seen)
}

const fn caller(name: &'static str, flaw: CallerFlaw, wrong: &'static str, seen: &'static str) -> Broken {
    row(name, Flaw::Caller(flaw), SIM, wrong, seen)
}

const fn worker(name: &'static str, flaw: WorkerFlaw, wrong: &'static str, seen: &'static str) -> Broken {
    row(name, Flaw::Worker(flaw), SIM, wrong, seen)
}

const fn transaction(
    name: &'static str,
    flaw: TransactionFlaw,
    wrong: &'static str,
    seen: &'static str,
) -> Broken {
    row(name, Flaw::Transactions(flaw), SIM, wrong, seen)
}

#[rustfmt::skip]
const STORES: &[Broken] = &[
    store("claim-checks-then-writes", StoreFlaw::ClaimChecksThenWrites, BOTH,
        "a claim looks whether the place is free, then writes",
        "mastodon/mastodon#37879, mitos-run/mitos#240: two requests with one key both ran"),
    store("completes-without-version", StoreFlaw::CompletesWithoutVersion, BOTH,
        "an outcome is written whatever is there",
        "brendanlong/lion-reader#917: a worker that had lost its lease finished the job of the next one"),
    store("removes-without-version", StoreFlaw::RemovesWithoutVersion, BOTH,
        "a release removes whatever is there",
        "apache/superset#43462, twentyhq/twenty#25661: a DEL that takes the next owner's record"),
    store("renews-by-key-alone", StoreFlaw::RenewsByKeyAlone, BOTH,
        "a former owner renews the lease of the next one",
        "brendanlong/lion-reader#917: a late heartbeat steals the lease back"),
    store("pretends-to-renew", StoreFlaw::PretendsToRenew, BOTH,
        "a renewal is acknowledged and not written: the lease is not renewed",
        "Azure-Samples/cosmos-db-design-patterns#91: the lease runs out under work that goes on"),
    store("fence-restarts", StoreFlaw::FenceRestarts, BOTH,
        "versions start at 1 again when a record is created again",
        "Azure-Samples/cosmos-db-design-patterns#91: the fence went with the document that held it"),
    store("loser-told-the-first", StoreFlaw::LoserToldTheFirst, BOTH,
        "a loser is told what was there long ago",
        "INSERT … ON CONFLICT, then a SELECT in the snapshot of before"),
    store("loser-told-nothing", StoreFlaw::LoserToldNothing, SUITE,
        "a loser is told that nothing is there",
        "INSERT … ON CONFLICT DO NOTHING RETURNING gives the loser no row"),
    store("answers-winners-first", StoreFlaw::AnswersWinnersFirst, BOTH,
        "the answers to a batch come in another order",
        "sqlalchemy/sqlalchemy#9618, citusdata/citus#5770: RETURNING has no order"),
    store("lost-reply-not-applied", StoreFlaw::LostReplyIsNotApplied, SIM,
        "a lost reply is reported as a write that did not happen",
        "drivers that fold a broken connection and a refused one into one error"),
    store("loads-from-copy", StoreFlaw::LoadsFromCopy, BOTH,
        "reads come from a copy that is not kept up to date",
        "reads that go to a replica while writes go to the primary"),
    store("due-vanishes", StoreFlaw::DueVanishes, BOTH,
        "what falls due vanishes by itself, whatever it was",
        "time-to-live of Redis and DynamoDB on the record that also holds the lease"),
    store("due-stamped-once", StoreFlaw::DueStampedOnce, BOTH,
        "the due time is stamped when a record is created, never again",
        "an upsert that leaves the column of the expiry out"),
    store("scan-skips", StoreFlaw::ScanSkips, SUITE,
        "a page leaves out its last record",
        "pages by OFFSET while rows before it are removed"),
    store("scan-repeats", StoreFlaw::ScanRepeats, SUITE,
        "a page begins with the last record of the one before",
        "a cursor that is compared with >= where > is meant"),
    store("scan-ignores-due", StoreFlaw::ScanIgnoresDue, SUITE,
        "what is not due is given out as due",
        "a sweep by age of the row, whatever its lease says"),
    store("gathers-only-while-asked", StoreFlaw::GathersOnlyWhileAsked, SUITE,
        "a swap handed over is forgotten when its caller goes away",
        "work that is done inside the future that waits for it"),
    store("mixes-up-inputs", StoreFlaw::MixesUpInputs, SIM,
        "the work is given the input of another intent",
        "one buffer for all rows of a page"),
    store("counts-no-tries", StoreFlaw::CountsNoTries, SIM,
        "each try is counted as the first one",
        "a counter in the memory of the worker that dies of the work"),
    store("cuts-replaced-inputs", StoreFlaw::CutsReplacedInputs, SIM,
        "what a run leaves to the next one as its input is stored cut off",
        "MySQL without strict mode: a text that is longer than its column is cut without a word"),
    store("unknown-outcome-frees-the-key", StoreFlaw::UnknownOutcomeFreesTheKey, SIM,
        "a key is free after an unknown outcome, as if nothing could have happened",
        "a lock that is deleted in a `finally`"),
    store("refuses-late-outcomes", StoreFlaw::RefusesLateOutcomes, SIM,
        "an outcome that was reached is given up when its lease has ended",
        "UPDATE … WHERE lease_until > now() for the completion, too"),
    store("leases-outlive-their-writers", StoreFlaw::LeasesOutliveTheirWriters, SIM,
        "the leases of a dead process are waited for although its death is certain",
        "a restart that blocks its own keys for the rest of their leases"),
    store("tickets-end-with-their-writers", StoreFlaw::TicketsEndWithTheirWriters, SIM,
        "a restart ends the claims of those who are still at work elsewhere",
        "UPDATE jobs SET state = 'queued' WHERE state = 'running' at every start"),
    store("enqueue-replaces", StoreFlaw::EnqueueReplaces, SIM,
        "what is enqueued again replaces what waits",
        "INSERT … ON CONFLICT DO UPDATE for a queue"),
    row("forgets-owed-claims", Flaw::ForgetsOwed, SIM,
        "a claim whose work never began is not given back, and is unknown for good",
        "one try to release, in a `Drop` that nobody waits for"),
    row("unsynced", Flaw::Unsynced, SIM,
        "an answer leaves before what it says is on disk",
        "write-ahead logs with their sync turned off for speed"),
];

#[rustfmt::skip]
const RULES: &[Broken] = &[
    rule("fingerprint-ignored", rules::fingerprint_ignored,
        "the same key for something else gets the first one's outcome",
        "josipmusa/idempotency4j#12, LabsCrypt/remitlend#1680"),
    rule("fingerprint-ignored-running", rules::fingerprint_ignored_while_running,
        "what is asked is not compared while the first one runs",
        "idempot-dev/idempot-js#191: `in progress` was checked before the payload"),
    rule("fingerprint-ignored-done", rules::fingerprint_ignored_once_done,
        "what is asked is compared only while the first one runs",
        "a digest in the lock's value that goes when the lock goes"),
    rule("fingerprint-ignored-waiting", rules::fingerprint_ignored_while_waiting,
        "what is asked is not compared while the first one waits for a worker",
        "queues that deduplicate by id alone"),
    rule("takes-over-early", rules::takes_over_early,
        "a lease counts as over when half of it is left",
        "two constants for one timeout, in two services"),
    rule("never-takes-over", rules::never_takes_over,
        "a dead owner's lease keeps everybody out forever",
        "aws-powertools/powertools-lambda-python#1038: IN PROGRESS after a timeout"),
    rule("takes-over-under-hold", rules::takes_over_under_hold,
        "a lease that ended is run again although the contract says hold",
        "aws-powertools/powertools-lambda-python#8049: a withdrawal repeated after a timeout"),
    rule("repeats-for-an-asker-under-hold", rules::repeats_for_an_asker_under_hold,
        "an unknown outcome that waits for a retry is repeated for an asker under hold",
        "a deployment that changes the setting while a job is between two tries"),
    rule("forgets-the-owners-contract", rules::forgets_the_owners_contract,
        "work begun under hold is repeated for an asker under retry",
        "a deployment that changes the setting while old work is still held"),
    rule("forgets-the-askers-contract", rules::forgets_the_askers_contract,
        "an asker under hold repeats work begun under retry",
        "the same deployment, the other way round"),
    rule("runs-after-unknown", rules::runs_after_unknown,
        "work whose outcome is unknown is run again automatically",
        "every retry loop that treats a timeout like a refusal"),
    rule("replays-past-retention", rules::replays_past_retention,
        "an outcome is given out for as long as its record is stored",
        "expiry left to a sweep that comes when it comes, as DynamoDB's does"),
    rule("runs-an-expired-key", rules::runs_an_expired_key,
        "an expired key is run again where the contract refuses it",
        "a retry that was queued for longer than the keys are kept"),
    rule("runs-past-a-tombstone", rules::runs_past_a_tombstone,
        "a tombstone keeps nobody out",
        "soft-deleted rows that the look-up leaves out"),
    rule("refuses-a-new-intent", rules::refuses_a_new_intent,
        "an expired key is refused where the contract lets it run",
        "unique keys without an end beside a promise of 24 hours"),
    rule("runs-what-is-done", rules::runs_what_is_done,
        "what is done is run again",
        "a status column that is written and never read"),
    rule("runs-what-has-no-answer", rules::runs_what_has_no_answer,
        "what is done is run again because its answer was too large to keep",
        "response stores that drop large bodies, and their key with them"),
    rule("retries-every-failure", rules::retries_every_failure,
        "a failure that was recorded as final is run again",
        "paveg/hono-idempotency#178: the record goes whenever the answer is not a 2xx"),
    rule("runs-what-is-dead", rules::runs_what_is_dead,
        "a dead letter is run by itself",
        "a dead-letter queue that is wired back to the queue"),
    rule("never-gives-up", rules::never_gives_up,
        "what kills its process is begun again and again",
        "crash loops: a message that is redelivered before its failure is counted"),
    rule("runs-what-is-closed", rules::runs_what_is_closed,
        "what was cancelled, discarded or undone is run for a late copy",
        "Seata and others: a late try after an empty rollback hangs for good"),
    rule("runs-an-expired-step", rules::runs_an_expired_step,
        "a step is done again because it is older than steps are kept",
        "a cache with a time-to-live as the record of finished steps"),
    rule("own-claim-not-recognised", rules::own_claim_not_recognised,
        "a claim whose answer was lost is taken for somebody else's",
        "object_store's put-if-absent: a failed create that may have been our own"),
    rule("every-claim-is-own", rules::every_claim_is_own,
        "everybody's claim is taken for one's own",
        "twentyhq/twenty#25661: a constant as the lock's value"),
];

#[rustfmt::skip]
const RUNTIMES: &[Broken] = &[
    runtime("clock-stands", RuntimeFlaw::ClockStands,
        "time never passes here: cached receipts are served after expiry",
        "a timestamp taken once at start and kept in a field"),
    runtime("clock-lags", RuntimeFlaw::ClockLags,
        "the clock is slow: the lease is over before its owner thinks so",
        "virtual machines that are stopped and resumed"),
    runtime("clock-set-back", RuntimeFlaw::ClockSetBack,
        "the clock is set back now and then",
        "leases measured by the wall clock while the time service corrects it"),
    runtime("attempts-alike", RuntimeFlaw::AttemptsAlike,
        "every attempt has the same number",
        "random generators seeded alike in every forked worker"),
    runtime("tasks-vanish", RuntimeFlaw::TasksVanish,
        "what is to happen beside the work never happens: no renewal, no waking",
        "background threads that do not survive a fork; functions frozen between requests"),
];

#[rustfmt::skip]
const SWEEPS: &[Broken] = &[
    sweep("sweep-removes-held", SweepFlaw::RemovesHeld,
        "a sweep removes held receipts whose lease is over, whatever their contract",
        "nightly DELETE … WHERE expires_at < now() over all states"),
    sweep("sweep-without-version", SweepFlaw::RemovesWithoutVersion,
        "a sweep removes what has changed since it looked",
        "a SELECT of what is due, then a DELETE by id"),
    sweep("sweep-forgets-tombstones", SweepFlaw::ForgetsTombstones,
        "a sweep leaves no tombstone where one was promised",
        "time-to-live in place of a sweep"),
    sweep("sweep-removes-kept", SweepFlaw::RemovesKept,
        "a sweep removes outcomes that are still to be kept",
        "eviction of a full cache that also was the record (Redis allkeys-lru)"),
    sweep("sweep-removes-steps", SweepFlaw::RemovesSteps,
        "a step is removed while its intent is there, and is done again",
        "one retention for steps and for what they belong to"),
    sweep("sweep-removes-waiting", SweepFlaw::RemovesWaiting,
        "what waits with its input is removed when it is due",
        "queues that drop messages by age"),
    sweep("sweep-removes-dead", SweepFlaw::RemovesDead,
        "dead letters are removed before anybody has looked at them",
        "dead-letter queues with a retention of days"),
    sweep("sweep-removes-unknown", SweepFlaw::RemovesUnknown,
        "a sweep removes receipts whose outcome is unknown, and their work is run again",
        "a clean-up script for rows that hang"),
];

#[rustfmt::skip]
const CALLERS: &[Broken] = &[
    caller("fingerprint-of-nothing", CallerFlaw::FingerprintOfNothing,
        "the fingerprint says nothing of what is asked",
        "julik/idempo#21: leaving the body out of the fingerprint"),
    caller("fingerprint-of-the-moment", CallerFlaw::FingerprintOfTheMoment,
        "an honest retry has another fingerprint",
        "digests over headers or bodies that carry a timestamp"),
    caller("one-key-for-all", CallerFlaw::OneKeyForAll,
        "different intents share one key",
        "LabsCrypt/remitlend#1680: the key alone, without route or tenant"),
    caller("runs-when-store-fails", CallerFlaw::RunsWhenStoreFails,
        "work is done without a claim when the store cannot be reached",
        "Dev1822/paySphere#1919: a middleware that fails open"),
    caller("runs-when-record-vanishes", CallerFlaw::RunsWhenRecordVanishes,
        "a waiter works without a claim once the record is gone",
        "loops that wait for a lock's key to go and then go on"),
    caller("detaches-its-work", CallerFlaw::DetachesItsWork,
        "work goes on when its lease is lost or its run is dropped",
        "linagora/cozy-stack#4911, redisson/redisson#4698: a lost lease stops nothing"),
    caller("says-nothing-happened", CallerFlaw::SaysNothingHappened,
        "work whose outcome is unknown is reported as work that did not happen",
        "a `finally` that releases, whatever came before"),
    caller("takes-too-late-for-recorded", CallerFlaw::TakesTooLateForRecorded,
        "an ending that came too late is taken for one that was recorded",
        "an UPDATE whose number of rows nobody looks at"),
    caller("answers-kept-for-good", CallerFlaw::KeepsAnswersForGood,
        "cached receipts are served after expiry",
        "a map in front of the store, without an end"),
    caller("attempts-named-alike", CallerFlaw::NamesEveryAttemptAlike,
        "every try is given the same name",
        "the name of the host or of the queue as the lock's value"),
    caller("enqueued-before-the-commit", CallerFlaw::SaysEnqueuedBeforeTheCommit,
        "work is called accepted, and is undone with the transaction that enqueued it",
        "jobs enqueued in a transaction callback that runs before the commit"),
    row("settles-before-late-effects", Flaw::Operator(OperatorFlaw::SettlesBeforeLateEffects), SIM,
        "`it did not happen` is believed while it can still happen",
        "a reconciliation that asks the provider a second too early"),
    row("forgets-before-late-effects", Flaw::Operator(OperatorFlaw::ForgetsBeforeLateEffects), SIM,
        "an unknown outcome is deleted while it can still happen",
        "DELETE FROM jobs WHERE state = 'unknown' by hand, to let a customer try again"),
    row("starts-now-from-the-beginning", Flaw::Operator(OperatorFlaw::StartsNowFromTheBeginning), SIM,
        "what is to begin now forgets how often it was tried",
        "UPDATE jobs SET run_at = now(), attempts = 0"),
    row("erases-more-than-wanted", Flaw::Operator(OperatorFlaw::ErasesMoreThanWanted), SIM,
        "an erasure takes the receipts of others with it",
        "a filter whose empty field means all"),
];

#[rustfmt::skip]
const WORKERS: &[Broken] = &[
    worker("worker-never-looks", WorkerFlaw::NeverLook,
        "what was begun and left stays where it is",
        "a clean-up job whose schedule was lost in a deployment"),
    worker("worker-claims-by-key-alone", WorkerFlaw::ClaimByKeyAlone,
        "what was found abandoned is claimed, also when another has it by then",
        "a SELECT of stale jobs, then an UPDATE by id"),
    worker("worker-begins-what-is-held", WorkerFlaw::BeginWhatIsHeld,
        "what somebody else is busy with is begun",
        "visibility timeouts that are shorter than the work"),
    worker("worker-begins-too-early", WorkerFlaw::BeginTooEarly,
        "what is to be begun later is begun now",
        "a back-off that only the process knows which has failed"),
    worker("resumes-by-key-alone", WorkerFlaw::ResumesByKeyAlone,
        "what was read a moment ago is resumed, also when another has it by then",
        "a cron job that reads a list and then works through it"),
];

#[rustfmt::skip]
const TRANSACTIONS: &[Broken] = &[
    transaction("transact-without-version", TransactionFlaw::CompletesWithoutVersion,
        "the completion in a transaction is written whatever is there: two commit",
        "check and write in a transaction that is READ COMMITTED"),
    transaction("business-commits-first", TransactionFlaw::CommitsBusinessFirst,
        "the business write is committed, and the receipt behind it",
        "a receipt in Redis beside a row in PostgreSQL"),
    transaction("conflict-is-no-loss", TransactionFlaw::ConflictIsNoLoss,
        "a receipt that is there does not stop work whose receipt is written before it",
        "INSERT … ON CONFLICT DO NOTHING whose number of rows nobody looks at"),
    transaction("lost-commit-not-applied", TransactionFlaw::LostCommitIsNotApplied,
        "a commit whose answer was lost is reported as one that did not happen",
        "retry loops around a transaction for every error of the connection"),
    transaction("enqueues-outside", TransactionFlaw::EnqueuesAtOnce,
        "what is enqueued in a transaction is there although it was rolled back",
        "a job queue on another connection than the transaction"),
    transaction("closes-outside", TransactionFlaw::ClosesAtOnce,
        "what is closed in a transaction is closed although it was rolled back",
        "an empty rollback that is noted on another connection than the rest of it"),
    transaction("records-over-what-is-there", TransactionFlaw::RecordsOverWhatIsThere,
        "what is recorded as done replaces the receipt that is there",
        "INSERT … ON CONFLICT DO UPDATE for a table of processed messages"),
];

const fn front(name: &'static str, flaw: FrontFlaw, wrong: &'static str, seen: &'static str) -> Broken {
    row(name, Flaw::Front(flaw), SIM, wrong, seen)
}

#[rustfmt::skip]
const FRONTS: &[Broken] = &[
    front("front-trusts-what-is-there", FrontFlaw::TrustsWhatIsThere,
        "an entry of a front is taken for a receipt without a look at its seal",
        "response caches whose keys collide, or that others can write"),
    front("front-runs-what-is-not-there", FrontFlaw::RunsWhatIsNotThere,
        "what the front does not have is run",
        "SET NX in a cache as the only lock: an eviction or a failover, and it runs twice"),
    front("front-believes-hints", FrontFlaw::BelievesHints,
        "a hint that somebody runs it is an answer, without a look at the store",
        "a lock key that outlives its owner: every retry is told that it is in progress"),
    front("front-before-the-commit", FrontFlaw::PutsBeforeTheCommit,
        "an outcome is in the front before it is in the store",
        "write to the cache, then commit: the commit fails, and the cache replays what never happened"),
    front("front-keeps-what-is-old", FrontFlaw::KeepsWhatIsOld,
        "an entry of a front is used however old it is, also after its receipt was erased",
        "time-to-live that is set again by every read"),
];
