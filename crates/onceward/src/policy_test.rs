//! Policies: presets, and durations that make no sense.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn presets_say_what_the_docs_say() {
    let day = Retention::For(Duration::from_hours(24));
    let week = Retention::For(Duration::from_hours(24 * 7));
    let cases = [
        (Policy::http(), day, OnUnknown::Hold, OnFailure::Replay),
        (Policy::queue(), week, OnUnknown::Retry, OnFailure::Retry),
        (Policy::ledger(), Retention::Forever, OnUnknown::Hold, OnFailure::Replay),
    ];
    for (policy, keep, unknown, failure) in cases {
        assert_eq!(policy.retention(Verdict::Succeeded), keep);
        assert_eq!(policy.retention(Verdict::Failed), keep);
        assert_eq!(policy.on_unknown(), unknown);
        assert_eq!(policy.on_failure(), failure);
    }
}

#[track_caller]
fn refused(result: Result<Policy>, expect: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Invalid);
    assert!(error.to_string().contains(expect), "{error}");
}

#[test]
fn absurd_durations_are_refused() {
    refused(Policy::http().to_builder().with_lease(Duration::ZERO).build(), "a lease of 0ns");
    refused(Policy::http().to_builder().with_lease(Duration::from_millis(19)).build(), "20ms");
    refused(Policy::http().to_builder().with_lease(Duration::MAX).build(), "86400s");
    refused(
        Policy::http().to_builder().with_on_duplicate(OnDuplicate::Wait(Duration::ZERO)).build(),
        "OnDuplicate::Conflict",
    );
    refused(Policy::http().to_builder().with_on_duplicate(OnDuplicate::Wait(Duration::MAX)).build(), "3600s");
    refused(
        Policy::http().to_builder().with_retention(Retention::For(Duration::ZERO)).build(),
        "at least 1 ms",
    );
    refused(
        Policy::http().to_builder().with_retention(Retention::For(Duration::MAX)).build(),
        "Retention::Forever",
    );
    refused(
        Policy::http()
            .to_builder()
            .with_on_expired(OnExpired::Refuse(Retention::For(Duration::ZERO)))
            .build(),
        "a tombstone",
    );
    refused(Policy::http().to_builder().with_tries_max(0).build(), "0 tries");
    refused(Policy::http().to_builder().with_tries_max(TRIES_MAX + 1).build(), "10001 tries");
    let shrinks = Backoff::new(SECOND, Duration::ZERO);
    refused(Policy::http().to_builder().with_backoff(shrinks).build(), "does not grow");
    let long = Backoff::new(SECOND, BACKOFF_MAX + SECOND);
    refused(Policy::http().to_builder().with_backoff(long).build(), "604800s");
    refused(Policy::http().to_builder().with_late_effect_max(Duration::MAX).build(), "late");
}

/// Only what is built counts: a wrong value that was replaced is none.
#[test]
fn setters_check_nothing() {
    let policy = Policy::http().to_builder().with_lease(Duration::ZERO).with_lease(SECOND).build().unwrap();
    assert_eq!(policy.lease(), SECOND);
}

#[test]
fn sensible_durations_are_accepted() {
    let policy = Policy::http().to_builder().with_lease(LEASE_MIN).with_lease(LEASE_MAX).build().unwrap();
    let policy = policy.to_builder().with_on_duplicate(OnDuplicate::Wait(WAIT_MAX)).build().unwrap();
    let policy = policy.to_builder().with_retention(Retention::For(RETENTION_MAX)).build().unwrap();
    let policy = policy.to_builder().with_retention_failed(Retention::For(SECOND)).build().unwrap();
    assert_eq!(policy.retention(Verdict::Failed), Retention::For(SECOND));
    assert_eq!(policy.retention(Verdict::Succeeded), Retention::For(RETENTION_MAX));
}
