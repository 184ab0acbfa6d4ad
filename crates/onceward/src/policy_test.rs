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
        assert_eq!(policy.unknown_rule(), unknown);
        assert_eq!(policy.failure_rule(), failure);
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
    refused(Policy::http().lease(Duration::ZERO), "a lease of 0ns");
    refused(Policy::http().lease(Duration::from_millis(19)), "20ms");
    refused(Policy::http().lease(Duration::MAX), "86400s");
    refused(Policy::http().on_duplicate(OnDuplicate::Wait(Duration::ZERO)), "OnDuplicate::Conflict");
    refused(Policy::http().on_duplicate(OnDuplicate::Wait(Duration::MAX)), "3600s");
    refused(Policy::http().keep(Retention::For(Duration::ZERO)), "at least 1 ms");
    refused(Policy::http().keep(Retention::For(Duration::MAX)), "Retention::Forever");
    refused(Policy::http().on_expired(OnExpired::Refuse(Retention::For(Duration::ZERO))), "a tombstone");
}

#[test]
fn sensible_durations_are_accepted() {
    let policy = Policy::http().lease(LEASE_MIN).unwrap().lease(LEASE_MAX).unwrap();
    let policy = policy.on_duplicate(OnDuplicate::Wait(WAIT_MAX)).unwrap();
    let policy = policy.keep(Retention::For(RETENTION_MAX)).unwrap();
    let policy = policy.keep_failed(Retention::For(SECOND)).unwrap();
    assert_eq!(policy.retention(Verdict::Failed), Retention::For(SECOND));
    assert_eq!(policy.retention(Verdict::Succeeded), Retention::For(RETENTION_MAX));
}
