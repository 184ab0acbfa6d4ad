//! Tests that an operation of three phases that crashes after any of them is finished by the next ask.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::{Lease, OnDuplicate, Outcome, Policy};
use tokio::sync::Notify;

use crate::bank::{Bank, Process, Tx, ask_under, ran};

pub(super) async fn die_one_after_the_other<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let policy = Policy::queue()
        .to_builder()
        .with_on_duplicate(OnDuplicate::Wait(Duration::from_secs(20)))
        .build()
        .unwrap();
    let (called, stands) = (AtomicUsize::new(0), Notify::new());
    let stand_still = async || {
        stands.notify_one();
        std::future::pending::<()>().await;
    };
    let operation = async |process: &Process<B>, die_after: usize| {
        let phases = async |lease: Lease| {
            let reserve = async |_: Lease, tx: Tx<B>| {
                B::charge(&tx, "reserved").await?;
                Ok(Outcome::succeeded("r"))
            };
            lease.step_in(&process.transactions, "reserve", reserve).await?.into_result()?;
            if die_after == 1 {
                stand_still().await;
            }
            let call = async |_: Lease| {
                called.fetch_add(1, Ordering::SeqCst);
                Ok(Outcome::succeeded("c"))
            };
            lease.step("call", call).await?.into_result()?;
            if die_after == 2 {
                stand_still().await;
            }
            let confirm = async |_: Lease, tx: Tx<B>| {
                B::charge(&tx, "confirmed").await?;
                Ok(Outcome::succeeded("done"))
            };
            Ok(lease.step_in(&process.transactions, "confirm", confirm).await?.into_result()?.outcome)
        };
        process.onceward.run(ask_under("phases", policy.clone()), phases).await
    };
    for die_after in [1, 2] {
        tokio::select! {
            answer = operation(one, die_after) => panic!("it was to stand still after phase {die_after}: {answer:?}"),
            () = stands.notified() => {}
        }
    }
    assert_eq!(&ran(operation(two, 0).await).outcome.body()[..], b"done");
    assert_eq!(bank.count("reserved"), 1);
    assert_eq!(called.load(Ordering::SeqCst), 1);
    assert_eq!(bank.count("confirmed"), 1);
}
