//! An idempotent charge: sent three times, charged once.

use onceward::{Ask, Fingerprint, Id, Lease, Onceward, Outcome, Policy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let onceward = Onceward::new(onceward_stores::open("embedded:./data").await?)?;
    for _ in 0..3 {
        let id = Id::new("tenant-7", "POST /charges", "order-81")?;
        let policy = Policy::http(); // kept for 24 hours; an unknown outcome is held
        let ask = Ask::new(id, Fingerprint::of(br#"{"amount":12}"#), policy);
        let charge = async |lease: Lease| {
            let key = lease.child("provider")?; // for the call downstream: the same on every try
            Ok(Outcome::succeeded(format!("charged under {key}")))
        };
        let ran = onceward.run(ask, charge).await?.into_result()?; // same key, other body: refused
        println!("{:?}, replayed: {}", ran.outcome.body(), ran.replayed);
    }
    Ok(())
}
