//! The acts. Each says what must be seen, and goes and sees.

use std::collections::HashSet;
use std::pin::Pin;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::service;
use super::stage::Stage;
use crate::admin::shape::{ReceiptShown, ReceiptsShown};
use crate::call::{Answer, Call};

/// One thing that goes wrong elsewhere.
pub struct Act {
    pub title: &'static str,
    /// What must be seen, word for word.
    pub expected: &'static str,
    play: for<'a> fn(&'a mut Stage) -> Seeing<'a>,
}

type Seen = Result<String, String>;
type Seeing<'a> = Pin<Box<dyn Future<Output = Seen> + 'a>>;

impl Act {
    pub async fn play(&self, stage: &mut Stage) -> Seen {
        (self.play)(stage).await
    }
}

pub const ALL: [Act; 6] = [
    Act {
        title: "A nervous client sends one payment a hundred times at once",
        expected: "1 charge, 100 answers 201, all with the same body",
        play: |stage| Box::pin(hundred_copies(stage)),
    },
    Act {
        title: "It asks once more, later",
        expected: "0 charges, the first answer again, byte for byte, marked as replayed",
        play: |stage| Box::pin(replay(stage)),
    },
    Act {
        title: "It uses the same key for another amount",
        expected: "0 charges, 422 key-reused",
        play: |stage| Box::pin(other_amount(stage)),
    },
    Act {
        title: "Two tenants happen to choose the same key",
        expected: "2 charges, 201 and 201, each its own",
        play: |stage| Box::pin(two_tenants(stage)),
    },
    Act {
        title: "The gateway is killed (SIGKILL) during a charge, and the client tries again",
        expected: "1 charge, no second one, 409 outcome-unknown, its receipt is unknown",
        play: |stage| Box::pin(killed(stage)),
    },
    Act {
        title: "An operator finds the charge in the ledger and settles it as done",
        expected: "0 charges, 201 with the charge from the ledger, marked as replayed",
        play: |stage| Box::pin(settled(stage)),
    },
];

/// Payments that are asked for in all acts together, each however often.
pub const PAYMENTS: u64 = 4;

const COPIES: usize = 100;

async fn hundred_copies(stage: &mut Stage) -> Seen {
    let before = stage.charges().await?;
    let copies: Vec<_> =
        (0..COPIES).map(|_| tokio::spawn(stage.pay("acme", "order-81", 12).send())).collect();
    let mut answers = Vec::new();
    for copy in copies {
        answers.push(copy.await.map_err(|error| error.to_string())??);
    }
    stage.first = answers.iter().find(|answer| !is_replayed(answer)).cloned();
    let statuses: HashSet<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    let bodies: HashSet<_> = answers.iter().map(|answer| answer.body.clone()).collect();
    let charges = stage.charges().await? - before;
    let same = if bodies.len() == 1 { "all with the same body" } else { "with different bodies" };
    Ok(format!("{}, {} answers {}, {same}", count(charges), answers.len(), list(&statuses)))
}

async fn replay(stage: &Stage) -> Seen {
    let before = stage.charges().await?;
    let first = stage.first.as_ref().ok_or("none of the hundred was the first answer")?;
    let again = stage.pay("acme", "order-81", 12).send().await?;
    let same = first.status == again.status && first.body == again.body && lasting(first) == lasting(&again);
    let same = if same { "the first answer again, byte for byte" } else { "another answer" };
    Ok(format!("{}, {same}, {}", count(stage.charges().await? - before), marked(&again)))
}

async fn other_amount(stage: &Stage) -> Seen {
    let before = stage.charges().await?;
    let answer = stage.pay("acme", "order-81", 13).send().await?;
    Ok(format!("{}, {}", count(stage.charges().await? - before), refusal(&answer)))
}

async fn two_tenants(stage: &Stage) -> Seen {
    let before = stage.charges().await?;
    let one = stage.pay("acme", "order-82", 20).send().await?;
    let other = stage.pay("globex", "order-82", 20).send().await?;
    let own = if one.body == other.body { "one for both" } else { "each its own" };
    let (one, other) = (one.status.as_u16(), other.status.as_u16());
    Ok(format!("{}, {one} and {other}, {own}", count(stage.charges().await? - before)))
}

/// Longer than the act takes: the gateway dies before it hears of the charge.
const NEVER_IN_TIME: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(20);

async fn killed(stage: &mut Stage) -> Seen {
    let before = stage.charges().await?;
    stage.pace(NEVER_IN_TIME).await?;
    let cut_off = tokio::spawn(stage.pay("acme", "order-83", 30).send());
    while stage.charges().await? == before {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    stage.kill_gateway().await?;
    // It got no answer; what it gets is a broken connection.
    let _ = cut_off.await;
    stage.pace(Duration::ZERO).await?;
    stage.restart_gateway().await?;
    let first = stage.charges().await? - before;
    let answer = loop {
        let answer = stage.pay("acme", "order-83", 30).send().await?;
        // Until the dead gateway's lease is over, it looks as if it were still at work.
        if !refusal(&answer).ends_with("in-progress") {
            break answer;
        }
        tokio::time::sleep(LOOK_EVERY * 10).await;
    };
    let second = stage.charges().await? - before - first;
    let second = if second == 0 { "no second one".into() } else { format!("then {second} more") };
    let states: Vec<&str> = doubts(stage).await?.iter().map(|receipt| receipt.state.name()).collect();
    Ok(format!("{}, {second}, {}, its receipt is {}", count(first), refusal(&answer), states.join(", ")))
}

async fn settled(stage: &Stage) -> Seen {
    let ledger = stage.ledger().await?;
    let charge =
        ledger.ledger.iter().find(|charge| charge.amount == 30).ok_or("no charge of 30 in the ledger")?;
    let recorded = service::answer(&charge.id, charge.amount);
    let receipts = doubts(stage).await?;
    let receipt = receipts.first().ok_or("nothing is in doubt")?;
    let settlement = json!({
        "scope": receipt.scope, "operation": receipt.operation, "key": receipt.key, "fence": receipt.fence,
        "done": {"verdict": "succeeded", "http": {
            "status": 201, "headers": [["content-type", "application/json"]], "body": recorded,
        }},
    });
    let call = Call::new(Method::POST, stage.admin(), "/v1/settle").json(settlement.to_string());
    let told = call.send().await?;
    if told.status != StatusCode::NO_CONTENT {
        return Ok(format!("settling was answered with {}", refusal(&told)));
    }
    let answer = stage.pay("acme", "order-83", 30).send().await?;
    let body =
        if answer.body == recorded.as_bytes() { "the charge from the ledger" } else { "something else" };
    let charges = count(stage.charges().await? - ledger.charges);
    Ok(format!("{charges}, {} with {body}, {}", answer.status.as_u16(), marked(&answer)))
}

async fn doubts(stage: &Stage) -> Result<Vec<ReceiptShown>, String> {
    let answer = Call::new(Method::GET, stage.admin(), "/v1/receipts?state=unknown").send().await?;
    let page: ReceiptsShown = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    Ok(page.receipts)
}

fn count(charges: u64) -> String {
    if charges == 1 { "1 charge".into() } else { format!("{charges} charges") }
}

fn list(statuses: &HashSet<u16>) -> String {
    let mut statuses: Vec<String> = statuses.iter().map(ToString::to_string).collect();
    statuses.sort();
    statuses.join(" and ")
}

fn marked(answer: &Answer) -> &'static str {
    if is_replayed(answer) { "marked as replayed" } else { "not marked as replayed" }
}

fn is_replayed(answer: &Answer) -> bool {
    answer.field("idempotent-replayed") == Some("true")
}

/// The fields that a replay must have too, in their order.
fn lasting(answer: &Answer) -> Vec<(String, Vec<u8>)> {
    let passing = ["date", "idempotent-replayed", "idempotency-expires"];
    let fields = answer.headers.iter().filter(|(name, _)| !passing.contains(&name.as_str()));
    fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

/// The status and the name of the problem.
fn refusal(answer: &Answer) -> String {
    let problem: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let name = problem.as_ref().and_then(|problem| problem["type"].as_str()?.rsplit(':').next());
    format!("{} {}", answer.status.as_u16(), name.unwrap_or("without a problem"))
}
