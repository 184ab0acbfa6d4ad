//! Tests of the lists of secrets in use.

use onceward_http::fingerprint::SECRET_BYTES;

use super::*;

const A: [u8; SECRET_BYTES] = [1; SECRET_BYTES];
const B: [u8; SECRET_BYTES] = [2; SECRET_BYTES];
const DAY: Retention = Retention::For(Duration::from_hours(24));

fn listed(secrets: &[[u8; SECRET_BYTES]]) -> Secrets {
    Secrets::new(secrets[0]).with_older(secrets[1..].iter().copied())
}

async fn start(onceward: &Onceward, secrets: &[[u8; SECRET_BYTES]], kept: Retention) -> Result<(), String> {
    exchange(onceward, &listed(secrets), kept, NewSecret::Refused).await
}

#[tokio::test]
async fn a_rotation_cannot_be_ended_while_receipts_are_kept() {
    let onceward = onceward_stores::in_memory();
    for list in [&[A][..], &[A, B], &[B, A]] {
        start(&onceward, list, DAY).await.unwrap();
    }
    for _ in 0..2 {
        let refused = start(&onceward, &[B], DAY).await.unwrap_err();
        assert!(refused.contains("in 24 h 00 min") && refused.contains("--accept-new-secret"), "{refused}");
    }
    // Who was refused has left nothing, and the other way round is no loss: it finds everything.
    start(&onceward, &[A], DAY).await.unwrap();
    exchange(&onceward, &listed(&[B]), DAY, NewSecret::Accepted).await.unwrap();
    start(&onceward, &[B], DAY).await.unwrap();
    assert!(start(&onceward, &[A], DAY).await.is_err());
}

#[tokio::test]
async fn a_rotation_ends_when_no_receipt_can_exist() {
    let onceward = onceward_stores::in_memory();
    start(&onceward, &[A], Retention::For(Duration::from_millis(300))).await.unwrap();
    assert!(start(&onceward, &[B], DAY).await.is_err());
    while start(&onceward, &[B], DAY).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn receipts_that_are_kept_forever_need_their_secret_forever() {
    let onceward = onceward_stores::in_memory();
    for _ in 0..3 {
        start(&onceward, &[A], Retention::Forever).await.unwrap();
        renew(&onceward, &listed(&[A]), Retention::Forever).await.unwrap();
    }
    assert_eq!(lists(&onceward).await.unwrap().len(), 1);
    let refused = start(&onceward, &[B], DAY).await.unwrap_err();
    assert!(refused.contains("never"), "{refused}");
}

/// An unknown outcome has no end, so what it was written with is known for as long.
#[tokio::test]
async fn the_secret_of_an_unsettled_receipt_stays_in_use() {
    use onceward::{Ask, Fingerprint, Policy, Stopped};
    let onceward = onceward_stores::in_memory();
    let ask = Ask::new(Id::new("scope", "POST /charges", "k").unwrap(), Fingerprint::of(b""), Policy::http());
    onceward.run(ask, async |_| Err(Stopped::unknown("lost"))).await.unwrap_err();
    let short = Retention::For(Duration::from_millis(1));
    start(&onceward, &[A], DAY).await.unwrap();
    start(&onceward, &[B, A], DAY).await.unwrap();
    renew(&onceward, &listed(&[B, A]), DAY).await.unwrap();
    assert_eq!(recorded_of(&onceward, &[A]).await, 1, "the receipt is younger than what is kept anyway");
    // Until it is older than this.
    std::thread::sleep(Duration::from_millis(5));
    renew(&onceward, &listed(&[B, A]), short).await.unwrap();
    assert_eq!(recorded_of(&onceward, &[A]).await, 2, "written again");
}

async fn recorded_of(onceward: &Onceward, secrets: &[[u8; SECRET_BYTES]]) -> usize {
    let front = format!("{}/", check_value(&secrets[0]));
    let ids = own_records::recorded(onceward, OPERATION).await.unwrap();
    ids.iter().filter(|id| id.key().starts_with(&front)).count()
}
