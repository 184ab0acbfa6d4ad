//! What the gateway itself keeps in the store, as done receipts in a scope that no caller has.

use onceward::{Answer, Ask, Fingerprint, Id, OnUnknown, Onceward, Outcome, Policy, Retention};

/// The scope of what the gateway itself keeps. No caller has it: theirs are hashes, or `anonymous` or `shared`.
pub const RESERVED_SCOPE: &str = "onceward";

/// The id of a record of the gateway.
pub fn id(operation: &str, key: &str) -> Id {
    Id::new(RESERVED_SCOPE, operation, key).expect("short and plain")
}

/// Records a text, once. Returns what is recorded there.
pub async fn record(onceward: &Onceward, id: Id, text: &str, retention: Retention) -> Result<String, String> {
    // A gateway that was killed while it wrote this has done nothing: the next one writes it.
    let policy = Policy::ledger().to_builder().with_on_unknown(OnUnknown::Retry).build().expect("valid");
    let ask = Ask::new(id.clone(), Fingerprint::of(b""), policy);
    let outcome = Outcome::succeeded(text.to_owned()).with_retention(retention);
    let answer = onceward.run(ask, async |_| Ok(outcome)).await;
    match answer.map_err(|error| format!("store: {error}"))? {
        Answer::Completed(ran) => Ok(String::from_utf8_lossy(ran.outcome.body()).into_owned()),
        Answer::Refused(refusal) => {
            let (operation, key) = (id.operation(), id.key());
            Err(format!(
                "store: the record {operation} {key} cannot be written or read: {refusal}; start again"
            ))
        }
    }
}
