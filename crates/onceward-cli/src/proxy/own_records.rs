//! What the gateway itself keeps in the store, as done receipts in a scope that no caller has.

use onceward::{
    Answer, Ask, Filter, Fingerprint, Id, OnUnknown, Onceward, Outcome, Policy, Retention, Scan, ScanTarget,
    TextMatch,
};

/// The scope of what the gateway itself keeps. No caller has it: theirs are hashes, or `anonymous` or `shared`.
pub const RESERVED_SCOPE: &str = "onceward";

const PAGE: usize = 256;

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

/// The ids of all records of this operation.
pub async fn recorded(onceward: &Onceward, operation: &str) -> Result<Vec<Id>, String> {
    let filter = Filter::default()
        .with_scope(Some(RESERVED_SCOPE.into()))
        .with_operation(Some(TextMatch::Is(operation.into())));
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let scan = Scan::new(ScanTarget::Matching(filter.clone()), PAGE).with_after(after);
        let page = onceward.list(&scan).await.map_err(|error| format!("store: {error}"))?;
        ids.extend(page.found.into_iter().map(|(id, _)| id));
        after = page.next;
        if after.is_none() {
            return Ok(ids);
        }
    }
}

/// The end of a key that no other record has.
pub fn random_suffix() -> Result<String, String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| format!("cannot generate a random number: {error}"))?;
    Ok(format!("{:016x}", u64::from_le_bytes(random)))
}
