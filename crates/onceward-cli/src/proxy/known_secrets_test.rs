//! Tests of the check values of secrets.

use super::*;

const A: [u8; SECRET_BYTES] = [1; SECRET_BYTES];
const B: [u8; SECRET_BYTES] = [2; SECRET_BYTES];
const C: [u8; SECRET_BYTES] = [3; SECRET_BYTES];

fn listed(secrets: &[[u8; SECRET_BYTES]]) -> Secrets {
    Secrets::new(secrets[0]).with_older(secrets[1..].iter().copied())
}

#[tokio::test]
async fn a_secret_is_known_once_it_was_listed_beside_a_known_one() {
    let onceward = onceward_stores::in_memory();
    let starts = async |secrets: &[[u8; SECRET_BYTES]]| {
        check(&onceward, &listed(secrets), NewSecret::Refused).await.is_ok()
    };
    assert!(starts(&[A]).await && starts(&[A]).await);
    assert!(!starts(&[B]).await && !starts(&[B, C]).await);
    // A whole rotation.
    assert!(starts(&[A, B]).await && starts(&[B, A]).await && starts(&[B]).await && starts(&[C, B]).await);
    assert!(starts(&[C]).await);
}

#[tokio::test]
async fn a_new_secret_can_be_accepted_on_purpose() {
    let onceward = onceward_stores::in_memory();
    check(&onceward, &listed(&[A]), NewSecret::Refused).await.unwrap();
    let error = check(&onceward, &listed(&[B]), NewSecret::Refused).await.unwrap_err();
    assert!(error.contains("--accept-new-secret") && error.contains("ONCEWARD_SECRET"), "{error}");
    check(&onceward, &listed(&[B]), NewSecret::Accepted).await.unwrap();
    check(&onceward, &listed(&[B]), NewSecret::Refused).await.unwrap();
    check(&onceward, &listed(&[A]), NewSecret::Refused).await.unwrap();
}
