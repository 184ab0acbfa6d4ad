//! Tests of the terms that are kept in the store.

use std::time::Instant;

use onceward::{Ask, Fingerprint, Outcome, Policy, Stopped, Sweep};

use super::*;
use crate::config::Settings;
use crate::proxy::{PathParameters, Spelling};

fn routes(text: &str) -> Routes {
    Settings::parse(text).unwrap().1
}

const RULES: PathRules = PathRules {
    normalise: true,
    case: Spelling::Exact,
    trailing_slash: Spelling::Exact,
    parameters: PathParameters::Refuse,
};

const SHARED: &str = "[defaults]\nscope = \"shared\"";
const NAMED: &str = "[defaults]\noperation = \"charge\"";

#[tokio::test]
async fn former_terms_are_found_until_they_are_given_up() {
    let onceward = onceward_stores::in_memory();
    let start = async |text: &str, new| exchange(&onceward, &routes(text), RULES, new).await.unwrap();
    let both = NewIdentity::ClaimBoth;
    assert!(start("", both).await.is_empty() && start("", both).await.is_empty());
    assert_eq!(start(SHARED, both).await, [TermsTable::of(&routes(""))]);
    assert_eq!(start(NAMED, both).await.len(), 2);
    // Back: what was written meanwhile has other terms.
    assert_eq!(start("", both).await.len(), 2);
    assert!(start(SHARED, NewIdentity::Accepted).await.is_empty());
    assert!(start(SHARED, both).await.is_empty());
    assert_eq!(start("", both).await, [TermsTable::of(&routes(SHARED))]);
}

/// A path is part of the id: under other rules an earlier request would not be found.
#[tokio::test]
async fn other_rules_for_paths_are_refused_until_they_are_meant() {
    let onceward = onceward_stores::in_memory();
    let other = PathRules { case: Spelling::Ignore, ..RULES };
    let both = NewIdentity::ClaimBoth;
    assert!(exchange(&onceward, &routes(""), RULES, both).await.is_ok());
    let refused = exchange(&onceward, &routes(""), other, both).await.unwrap_err();
    assert!(refused.contains("path_case") && refused.contains("--accept-new-identity"), "{refused}");
    assert!(exchange(&onceward, &routes(""), RULES, both).await.is_ok(), "what was refused left nothing");
    assert!(exchange(&onceward, &routes(""), other, NewIdentity::Accepted).await.is_ok());
    assert!(exchange(&onceward, &routes(""), other, both).await.is_ok());
    assert!(exchange(&onceward, &routes(""), RULES, both).await.is_err());
    let ignored = PathRules { parameters: PathParameters::Ignore, ..other };
    assert!(exchange(&onceward, &routes(""), ignored, both).await.is_err());
}

#[tokio::test]
async fn with_receipts_that_are_kept_forever_terms_are_known_forever() {
    let onceward = onceward_stores::in_memory();
    let forever = routes("[defaults]\nkeep = { 2xx = \"1h\", 4xx = \"forever\" }");
    assert_eq!(kept(&forever), Retention::Forever);
    for _ in 0..3 {
        exchange(&onceward, &forever, RULES, NewIdentity::ClaimBoth).await.unwrap();
    }
    assert_eq!(recorded(&onceward).await.unwrap().len(), 1);
    let hours = |hours| Retention::For(Duration::from_hours(hours));
    assert_eq!(kept(&routes("")), hours(24 + 3));
    assert_eq!(
        kept(&routes("[defaults]\nkeep = \"2h\"\n[[route]]\npath = \"/a\"\nkeep = \"7d\"")),
        hours(7 * 24 + 3)
    );
    let tombstones = "[defaults]\nkeep = \"1h\"\non_expired = \"reject\"\nexpired_kept = \"5h\"";
    assert_eq!(kept(&routes(tombstones)), hours(6 + 3));
}

#[tokio::test]
async fn terms_are_unknown_when_no_receipt_can_exist_under_them() {
    let onceward = onceward_stores::in_memory();
    let (own, former) = (TermsTable::of(&routes("")), TermsTable::of(&routes(SHARED)));
    record(&onceward, &former, Retention::For(Duration::from_millis(50))).await.unwrap();
    record(&onceward, &own, Retention::For(Duration::from_hours(1))).await.unwrap();
    assert_eq!(others(&onceward, &own).await.unwrap(), [former]);
    let began = Instant::now();
    while !others(&onceward, &own).await.unwrap().is_empty() {
        onceward.sweep(&Sweep::default()).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(10));
        tokio::task::yield_now().await;
    }
    assert!(began.elapsed() < Duration::from_secs(10) && others(&onceward, &own).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_unknown_outcome_has_no_end() {
    let onceward = onceward_stores::in_memory();
    assert!(!has_unsettled(&onceward, Duration::ZERO).await.unwrap());
    let ask = Ask::new(Id::new("a", "b", "c").unwrap(), Fingerprint::of(b""), Policy::http());
    let _ = onceward.run(ask, async |_| Err::<Outcome, _>(Stopped::unknown("lost"))).await;
    assert!(has_unsettled(&onceward, Duration::ZERO).await.unwrap());
    assert!(!has_unsettled(&onceward, Duration::from_hours(1)).await.unwrap());
}
