//! Versions of entities, in real transactions.

use onceward_flows::{Advance, FirstVersion, advance, advance_to};

use crate::support::Database;

#[tokio::test]
async fn versions_advance_one_by_one_and_with_the_transaction() {
    let Some(database) = Database::fresh().await else { return };
    let mut client = database.client().await;
    let steps = [
        (1, Advance::Applied),
        (1, Advance::Duplicate),
        (3, Advance::Gap { expected: 2 }),
        (2, Advance::Applied),
        (3, Advance::Applied),
        (2, Advance::Stale),
    ];
    for (version, expected) in steps {
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(advance(&mut tx, "stock", "item-7", version, FirstVersion::One).await.unwrap(), expected);
        tx.commit().await.unwrap();
    }
    let mut tx = client.transaction().await.unwrap();
    assert_eq!(advance(&mut tx, "stock", "item-7", 4, FirstVersion::One).await.unwrap(), Advance::Applied);
    tx.rollback().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    assert_eq!(advance_to(&mut tx, "stock", "item-7", 9).await.unwrap(), Advance::Applied);
    assert_eq!(advance_to(&mut tx, "stock", "item-7", 5).await.unwrap(), Advance::Stale);
    assert_eq!(advance(&mut tx, "other", "item-7", 40, FirstVersion::Any).await.unwrap(), Advance::Applied);
    for bad in [0, u64::MAX] {
        advance(&mut tx, "stock", "item-7", bad, FirstVersion::Any).await.unwrap_err();
    }
    tx.commit().await.unwrap();
    assert_eq!(
        database.sql("SELECT string_agg(scope || version, ' ' ORDER BY scope) FROM onceward_versions"),
        "other40 stock9"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_at_the_same_time_one_is_applied() {
    let Some(database) = Database::fresh().await else { return };
    let one = |url: String| async move {
        let mut client = crate::support::connect(&url).await;
        let mut tx = client.transaction().await.unwrap();
        let advance = advance(&mut tx, "stock", "item-7", 1, FirstVersion::One).await.unwrap();
        tx.commit().await.unwrap();
        advance
    };
    let (first, second) = tokio::join!(tokio::spawn(one(database.url())), tokio::spawn(one(database.url())));
    let mut both = [first.unwrap(), second.unwrap()].map(|advance| format!("{advance:?}"));
    both.sort();
    assert_eq!(both, ["Applied", "Duplicate"]);
}
