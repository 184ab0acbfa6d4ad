//! Every service of the zoo, what is wrong with it, and which scenario must catch it.

use std::sync::Arc;
use std::time::Duration;

use super::careful::{Careful, Habits};
use super::charges::Charges;
use super::compared::{Alike, Compared, GraphQl, KeyInBody, KeyInQuery, KeyOptional, Throttled};
use super::durable::{self, AfterCrash, Beside, Journal};
use super::events::Events;
use super::failures;
use super::fingerprints;
use super::keys;
use super::leases::{self, Leased};
use super::races::{PatientOnlyAtHome, Plain, Race, Racy};
use super::replays;
use super::retention;
use super::server::Service;
use super::sound;
use super::versions;

/// One service of the zoo.
#[derive(Clone, Copy)]
pub struct ZooService {
    /// The name.
    pub name: &'static str,
    /// Its flaw; for a right one, how it does it.
    pub what: &'static str,
    /// The scenario that must be violated; none for a right one.
    pub caught_by: Option<&'static str>,
    /// Scenarios that may see the same mistake before that one does. Each has its reason in the table.
    pub or_caught_by: &'static [&'static str],
    /// Scenarios that may find something else, which this mistake brings with it and of which nobody can tell from outside
    /// that it has the same cause. Each has its reason in the table.
    pub also_found_by: &'static [&'static str],
    /// Whether it is to be killed and started again, and so lives in a process and a folder of its own.
    pub is_durable: bool,
    /// Whether a failure is an answer like any other.
    pub failures_are_final: bool,
    /// How it says "not now" in its own words.
    pub not_now: &'static [&'static str],
    /// How it refuses in its own words.
    pub refused: &'static [&'static str],
    /// How it fails in its own words.
    pub failed: &'static [&'static str],
    /// How it says in its own words that an operator has to settle a key.
    pub held: &'static [&'static str],
    /// Where the key is, if it is in the body.
    pub key_pointer: Option<&'static str>,
    /// The parameter of the query that has the key, if it is there.
    pub key_parameter: Option<&'static str>,
    /// How long its answers are waited for.
    pub answers_within: Duration,
    /// Makes the instances that share a charges. Two of them, where they may differ.
    pub(super) make: fn(&Charges) -> Vec<Arc<dyn Service>>,
}

/// All of them, the broken first.
pub fn all() -> &'static [ZooService] {
    ALL
}

/// The one of this name.
pub fn named(name: &str) -> Option<&'static ZooService> {
    ALL.iter().find(|service| service.name == name)
}

/// Two instances of one service with one memory.
fn one(service: impl Service) -> Vec<Arc<dyn Service>> {
    let service: Arc<dyn Service> = Arc::new(service);
    vec![service.clone(), service]
}

fn careful(habits: impl Habits) -> Vec<Arc<dyn Service>> {
    one(Careful::new(habits))
}

const fn broken(
    name: &'static str,
    what: &'static str,
    caught_by: &'static str,
    make: fn(&Charges) -> Vec<Arc<dyn Service>>,
) -> ZooService {
    ZooService { caught_by: Some(caught_by), ..sound(name, what, make) }
}

const fn sound(
    name: &'static str,
    what: &'static str,
    make: fn(&Charges) -> Vec<Arc<dyn Service>>,
) -> ZooService {
    ZooService {
        name,
        what,
        caught_by: None,
        or_caught_by: &[],
        also_found_by: &[],
        is_durable: false,
        failures_are_final: false,
        not_now: &[],
        refused: &[],
        failed: &[],
        held: &[],
        key_pointer: None,
        key_parameter: None,
        answers_within: Duration::from_secs(60),
        make,
    }
}

const fn durable(service: ZooService) -> ZooService {
    ZooService { is_durable: true, ..service }
}

static ALL: &[ZooService] = &[
    broken("plain", "knows no keys at all; events are known by their ids", "simultaneous-duplicates", |_| {
        one(Plain(Events::Right))
    }),
    ZooService {
        // Keys and events are two mistakes.
        also_found_by: &["redelivered-webhook"],
        ..broken(
            "plain-with-events-when-done",
            "knows no keys at all; an event is known once it is done",
            "simultaneous-duplicates",
            |_| one(Plain(Events::WhenDone)),
        )
    },
    broken("check-then-write", "looks, and then writes", "simultaneous-duplicates", |_| {
        one(Compared::new(Racy::new(Race::CheckThenWrite)))
    }),
    ZooService {
        // Its key is stuck whether or not there was a second effect: two mistakes.
        also_found_by: &["retry-after-success"],
        ..broken("stays-locked", "looks, then locks, and never unlocks", "simultaneous-duplicates", |_| {
            one(Compared::new(Racy::new(Race::StaysLocked)))
        })
    },
    broken("claim-after-effect", "writes nothing before the work is done", "retry-while-running", |_| {
        one(Compared::new(Racy::new(Race::ClaimAfterEffect)))
    }),
    broken("waiter-runs-again", "one who waited runs when the first is done", "retry-while-running", |_| {
        one(Compared::new(Racy::new(Race::WaiterRunsAgain)))
    }),
    broken(
        "waiter-loses-patience",
        "one who waited for a while runs all the same",
        "retry-while-running",
        |_| one(Compared::new(Racy::new(Race::WaiterLosesPatience))),
    ),
    broken(
        "duplicate-fails",
        "the unique index's error goes to the client",
        "simultaneous-duplicates",
        |_| one(Compared::new(Racy::new(Race::DuplicateFails))),
    ),
    broken(
        "conflict-recorded",
        "a duplicate's 409 is recorded as the answer",
        "simultaneous-duplicates",
        |_| one(Compared::new(Racy::new(Race::ConflictRecorded))),
    ),
    broken(
        "hang-up-frees",
        "a hang-up drops the work after its effect, and the claim",
        "retry-after-hang-up",
        |_| one(Compared::new(Racy::new(Race::HangUpFrees))),
    ),
    broken("global-keys", "keys are looked up without their tenant", "other-tenant", |_| {
        careful(keys::Global)
    }),
    broken("pathless-keys", "keys are looked up without their path", "other-path", |_| {
        careful(keys::Pathless)
    }),
    broken("trimmed-keys", "white space around a key is cut off", "distinct-keys", |_| {
        careful(keys::Trimmed)
    }),
    broken("case-folded-keys", "a collation knows no case", "distinct-keys", |_| careful(keys::CaseFolded)),
    broken("truncated-keys", "a column cuts keys off", "distinct-keys", |_| careful(keys::Truncated)),
    broken("short-keys", "only the beginning of a key counts", "distinct-keys", |_| careful(keys::Short)),
    broken("dashless-keys", "dashes are taken out of keys", "distinct-keys", |_| careful(keys::Dashless)),
    broken("missing-is-empty", "no key is read as the empty key", "missing-key", |_| {
        careful(keys::MissingIsEmpty)
    }),
    broken("empty-is-a-key", "the empty key is a key", "malformed-keys", |_| careful(keys::EmptyIsAKey)),
    broken("long-key-fails", "a long key gets the database's error", "malformed-keys", |_| {
        careful(keys::TooLongFails)
    }),
    broken("malformed-ignored", "a key that cannot be read is passed over", "malformed-keys", |_| {
        careful(keys::MalformedIgnored::default())
    }),
    broken("body-ignored", "nobody compares bodies", "other-body-after", |_| careful(fingerprints::Ignored)),
    broken("body-length-only", "only the lengths of bodies are compared", "other-body-after", |_| {
        careful(fingerprints::LengthOnly)
    }),
    broken("body-in-key", "another body is another request", "reordered-json", |_| {
        careful(fingerprints::PartOfTheKey)
    }),
    broken(
        "body-only-when-done",
        "bodies are not compared with what is running",
        "other-body-during",
        |_| careful(fingerprints::OnlyWhenDone),
    ),
    broken("replayed-as-200", "the status is not kept", "retry-after-success", |_| careful(replays::As200)),
    broken("fields-lost", "header fields are not kept", "retry-after-success", |_| {
        careful(replays::FieldsLost)
    }),
    broken("body-rewritten", "the body is parsed and written again", "retry-after-success", |_| {
        careful(replays::BodyRewritten)
    }),
    broken("conflict-when-done", "a retry is only told that it is one", "retry-after-success", |_| {
        careful(replays::ConflictWhenDone)
    }),
    broken(
        "frees-after-effect",
        "a 5xx after the effect frees the key as if nothing had happened",
        "failed-after-effect",
        |_| careful(failures::FreesAfterEffect),
    ),
    broken(
        "expired-unclaimed",
        "a receipt past its retention is passed over without a claim",
        "expiry",
        |_| careful(retention::ExpiredUnclaimed),
    ),
    broken("failure-cached", "a 5xx is replayed forever", "failed-first", |_| careful(failures::Cached)),
    broken("failure-burns-key", "nobody frees the key of a failure", "failed-first", |_| {
        careful(failures::Burned)
    }),
    broken("failure-after-effect", "a failure after the effect frees the key", "failed-first", |_| {
        one(Compared::new(failures::AfterTheEffect::default()))
    }),
    broken(
        "frees-the-successor",
        "the cleaning up of a failure frees its successor's claim",
        "failed-first",
        |_| one(Compared::new(failures::FreesTheSuccessor::default())),
    ),
    broken("memory-per-instance", "each instance has a memory of its own", "several-instances", |_| {
        vec![Arc::new(Careful::new(sound::Waiting)), Arc::new(Careful::new(sound::Waiting))]
    }),
    broken("evicted", "a full cache forgets the oldest answers", "late-retry", |_| {
        careful(retention::Evicts)
    }),
    broken("forgotten-early", "answers are kept for less than promised", "expiry", |_| {
        careful(retention::ForgetsEarly)
    }),
    broken("expires-while-running", "a claim ends, its work does not", "slow-owner", |_| {
        one(Leased::new(leases::Flaw::ExpiresWhileRunning))
    }),
    broken("completes-without-fence", "a late owner overwrites its successor's answer", "slow-owner", |_| {
        one(Leased::new(leases::Flaw::CompletesWithoutFence))
    }),
    durable(broken("claim-lasts-for-a-day", "a claim lasts as long as an answer", "crash", |charges| {
        one(Compared::new(Beside::open(durable::Flaw::ClaimLastsForADay, charges)))
    })),
    durable(broken(
        "effect-before-receipt",
        "a crash after the effect leaves the key free",
        "crash",
        |charges| one(Compared::new(Beside::open(durable::Flaw::EffectBeforeReceipt, charges))),
    )),
    durable(broken(
        "written-behind",
        "the answer leaves before its receipt is written",
        "crash",
        |charges| one(Compared::new(Beside::open(durable::Flaw::WrittenBehind, charges))),
    )),
    durable(broken(
        "effect-just-before-receipt",
        "the same, with a few milliseconds between effect and receipt",
        "crash",
        |charges| one(Compared::new(Beside::open(durable::Flaw::EffectJustBeforeReceipt, charges))),
    )),
    durable(broken("memory-only", "a restart forgets every answer", "crash", |_| careful(sound::Waiting))),
    broken(
        "stuck-after-effect",
        "a failure after the effect leaves the claim behind",
        "failed-after-effect",
        |_| careful(failures::StuckAfterEffect),
    ),
    broken("replayed-as-409", "a replay has the first body, with 409", "retry-after-success", |_| {
        careful(replays::As409)
    }),
    broken(
        "waiter-gives-up-late",
        "one who waited for 400 ms runs all the same",
        "long-running-duplicates",
        |_| one(Compared::new(Racy::new(Race::WaiterGivesUpLate))),
    ),
    broken("cookie-ignored", "users of one client, by cookie, share keys", "other-tenant", |_| {
        careful(keys::CookieIgnored)
    }),
    broken("host-ignored", "customers with hosts of their own share keys", "other-tenant", |_| {
        careful(keys::HostIgnored)
    }),
    broken("squatted", "a key belongs to who uses it first", "key-squatting", |_| careful(keys::Squatted)),
    broken("whole-credential", "a refreshed token is another client", "refreshed-credential", |_| {
        careful(keys::WholeCredential)
    }),
    broken("stale-writes", "compares the version, and then writes", "lost-update", |_| {
        careful(versions::StaleWrites)
    }),
    broken("version-before-key", "the retry of a change is refused for its If-Match", "lost-update", |_| {
        careful(versions::VersionBeforeKey)
    }),
    broken("events-by-signature", "an event is known by its signature", "redelivered-webhook", |_| {
        careful(versions::EventsBySignature)
    }),
    broken("events-when-done", "an event is known once it is done", "redelivered-webhook", |_| {
        careful(versions::EventsWhenDone)
    }),
    ZooService {
        // A duplicate that is sent late falls into the same gap as a retry.
        or_caught_by: &["simultaneous-duplicates"],
        // Its replays lack a field, also where nothing overlaps: two mistakes.
        also_found_by: &["retry-after-success"],
        ..broken(
            "unlocks-before-writing",
            "the lock ends before the receipt is there; replays lack a field",
            "retry-while-running",
            |_| one(Compared::new(Racy::new(Race::UnlocksBeforeWriting))),
        )
    },
    ZooService {
        answers_within: Duration::from_secs(2),
        ..broken(
            "hang-up-strands",
            "a hang-up leaves the claim, and who asks again waits forever",
            "retry-after-hang-up",
            |_| one(Compared::new(Racy::new(Race::HangUpStrands))),
        )
    },
    broken(
        "conflicts-then-409",
        "a replay has the first body, with the status of a duplicate",
        "retry-after-success",
        |_| careful(replays::As409WhenDone),
    ),
    durable(broken(
        "journal-replays-as-409",
        "effect and receipt are one line; a replay has 409",
        "retry-after-success",
        |charges| one(Journal::open(AfterCrash::Free, charges).replaying_as(409)),
    )),
    broken(
        "frees-after-the-lease",
        "a failure after the effect frees the key when the lease is over",
        "failed-after-effect",
        |_| one(Compared::new(failures::FreesAfterTheLease::default())),
    ),
    broken(
        "compared-too-late",
        "another body runs before it is compared, and leaves its claim behind",
        "other-body-after",
        |_| one(fingerprints::ComparedTooLate::default()),
    ),
    broken(
        "patient-only-at-home",
        "one who waited for 400 ms at another instance runs all the same",
        "several-instances",
        |_| PatientOnlyAtHome::pair().map(|instance| Arc::new(Compared::new(instance)) as _).to_vec(),
    ),
    durable(broken(
        "reruns-on-start",
        "what was begun is done again at the next start, effect or not",
        "crash",
        |charges| one(Compared::new(Beside::open(durable::Flaw::RerunsOnStart, charges))),
    )),
    broken(
        "event-waiter-loses-patience",
        "a delivery that waited for the first one for 400 ms works itself",
        "redelivered-webhook",
        |_| careful(versions::EventWaiterLosesPatience),
    ),
    broken(
        "version-before-slow-work",
        "the version is compared before slow work, and not again after it",
        "lost-update",
        |_| careful(versions::VersionBeforeSlowWork),
    ),
    sound("versions-with-409", "in memory; a change of a version that is gone gets 409", |_| {
        careful(versions::VersionsWith409)
    }),
    sound("waits", "in memory; a duplicate waits", |_| careful(sound::Waiting)),
    sound("conflicts", "in memory; a duplicate is told to come again", |_| careful(sound::Conflicting)),
    sound("locks", "in memory; a duplicate gets 423 until the first one is done", |_| {
        careful(sound::Locking)
    }),
    sound("cells", "a cell for each key; the key is optional, bodies are bytes", |_| {
        one(sound::Cells::default())
    }),
    sound("leased", "claims end; effect and answer are one step, behind a fence", |_| {
        one(Leased::new(leases::Flaw::Sound))
    }),
    ZooService {
        failures_are_final: true,
        ..sound("final", "as Stripe does it: failures are final, bodies are bytes", |_| careful(sound::Final))
    },
    sound("refuses-with-409", "in memory; a key that was used for anything else gets 409", |_| {
        careful(sound::RefusingWith409)
    }),
    sound("refuses-expired", "in memory; a key past its retention gets 409", |_| {
        careful(sound::RefusingExpired)
    }),
    sound("unlocks-late", "in memory; the lock goes a little after the answer", |_| {
        careful(sound::UnlockingLate)
    }),
    sound("throttles", "in memory; the second request of every key gets 429", |_| {
        one(Throttled::new(Careful::new(sound::Waiting)))
    }),
    sound("alike", "in memory; all answers look the same", |_| one(Alike(Careful::new(sound::Waiting)))),
    sound("holds-expired", "a claim that ends while its work runs is held for a person", |_| {
        one(Leased::new(leases::Flaw::HoldsWhenExpired))
    }),
    durable(sound("journal", "effect and receipt are one line of a file", |charges| {
        one(Journal::open(AfterCrash::Free, charges))
    })),
    durable(sound("holds", "a claim of a killed process is held until a person settles it", |charges| {
        one(Journal::open(AfterCrash::Held, charges))
    })),
    durable(sound(
        "waits-for-the-dead",
        "waits longer than a lease for a claim that nobody has",
        |charges| one(Journal::open(AfterCrash::WaitedFor, charges)),
    )),
    ZooService {
        not_now: &["202"],
        ..sound("accepts", "in memory; a duplicate gets 202 until the first one is done", |_| {
            careful(sound::Accepting)
        })
    },
    sound(
        "quotes-are-letters",
        "in memory; any text is a key, quotes included; an empty field is none",
        |_| one(KeyOptional(Careful::new(sound::AnyText))),
    ),
    sound("raw-keys-only", "in memory; a key in quotes is refused", |_| careful(sound::RawOnly)),
    ZooService {
        not_now: &["/errors/0/extensions/code=IN_PROGRESS"],
        refused: &["/errors/0/extensions/code=KEY_REUSED", "/errors/0/extensions/code=BAD_KEY"],
        failed: &["/errors/0/extensions/code=FAILED"],
        ..sound("graphql", "every answer is a 200; the body says what went wrong", |_| {
            one(GraphQl(Careful::new(sound::Conflicting)))
        })
    },
    ZooService {
        key_pointer: Some("/request_id"),
        ..sound("key-in-body", "the key is a member of the body", |_| {
            one(KeyInBody(Careful::new(sound::Waiting)))
        })
    },
    ZooService {
        key_parameter: Some("request_id"),
        ..sound("key-in-query", "the key is a parameter of the query", |_| {
            one(KeyInQuery(Careful::new(sound::Waiting)))
        })
    },
    ZooService {
        held: &["/code=ASK_SUPPORT"],
        ..durable(sound(
            "holds-in-own-words",
            "a claim of a killed process is held, said in other words than ours",
            |charges| one(Journal::open(AfterCrash::HeldInOwnWords, charges)),
        ))
    },
];
