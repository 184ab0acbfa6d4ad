//! The scenarios of the demo. Each states the result that it expects, and observes the actual one.

use std::collections::HashSet;
use std::pin::Pin;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::processes::DemoProcesses;
use super::service;
use crate::admin::shape::{ReceiptShown, ReceiptsShown};
use crate::http_call::{HttpAnswer, HttpCall};

/// One failure that happens without the gateway, and the result with it.
pub struct Scenario {
    pub title: &'static str,
    /// The line that must be observed, word for word.
    pub expected: &'static str,
    run: for<'a> fn(&'a mut DemoProcesses) -> ObservedFuture<'a>,
}

type Observed = Result<String, String>;
type ObservedFuture<'a> = Pin<Box<dyn Future<Output = Observed> + 'a>>;

impl Scenario {
    pub async fn run(&self, demo: &mut DemoProcesses) -> Observed {
        (self.run)(demo).await
    }
}

pub const ALL: [Scenario; 6] = [
    Scenario {
        title: "A client sends one payment a hundred times at once",
        expected: "1 charge, 100 answers 201, all with the same body",
        run: |demo| Box::pin(hundred_copies(demo)),
    },
    Scenario {
        title: "The client sends it once more, later",
        expected: "0 charges, the first answer again, byte for byte, marked as replayed",
        run: |demo| Box::pin(replay(demo)),
    },
    Scenario {
        title: "The client uses the same key for another amount",
        expected: "0 charges, 422 key-reused",
        run: |demo| Box::pin(other_amount(demo)),
    },
    Scenario {
        title: "Two tenants happen to choose the same key",
        expected: "2 charges, 201 and 201, each its own",
        run: |demo| Box::pin(two_tenants(demo)),
    },
    Scenario {
        title: "The gateway is killed (SIGKILL) during a charge, and the client tries again",
        expected: "1 charge, no second one, 409 outcome-unknown, its receipt is unknown",
        run: |demo| Box::pin(killed(demo)),
    },
    Scenario {
        title: "An operator finds the charge in the ledger and settles it as done",
        expected: "0 charges, 201 with the charge from the ledger, marked as replayed",
        run: |demo| Box::pin(settled(demo)),
    },
];

/// The number of different payments that all scenarios together request; each may be sent several times.
pub const PAYMENTS: u64 = 4;

const COPIES: usize = 100;

async fn hundred_copies(demo: &mut DemoProcesses) -> Observed {
    let before = demo.charges().await?;
    let copies: Vec<_> = (0..COPIES).map(|_| tokio::spawn(demo.pay("acme", "order-81", 12).send())).collect();
    let mut answers = Vec::new();
    for copy in copies {
        answers.push(copy.await.map_err(|error| error.to_string())??);
    }
    demo.first = answers.iter().find(|answer| !is_replayed(answer)).cloned();
    let statuses: HashSet<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    let bodies: HashSet<_> = answers.iter().map(|answer| answer.body.clone()).collect();
    let charges = demo.charges().await? - before;
    let same = if bodies.len() == 1 { "all with the same body" } else { "with different bodies" };
    Ok(format!("{}, {} answers {}, {same}", count(charges), answers.len(), list(&statuses)))
}

async fn replay(demo: &DemoProcesses) -> Observed {
    let before = demo.charges().await?;
    let first = demo.first.as_ref().ok_or("all of the hundred answers were replays")?;
    let again = demo.pay("acme", "order-81", 12).send().await?;
    let same = first.status == again.status
        && first.body == again.body
        && replayed_fields(first) == replayed_fields(&again);
    let same = if same { "the first answer again, byte for byte" } else { "another answer" };
    Ok(format!("{}, {same}, {}", count(demo.charges().await? - before), replay_mark(&again)))
}

async fn other_amount(demo: &DemoProcesses) -> Observed {
    let before = demo.charges().await?;
    let answer = demo.pay("acme", "order-81", 13).send().await?;
    Ok(format!("{}, {}", count(demo.charges().await? - before), refusal(&answer)))
}

async fn two_tenants(demo: &DemoProcesses) -> Observed {
    let before = demo.charges().await?;
    let one = demo.pay("acme", "order-82", 20).send().await?;
    let other = demo.pay("globex", "order-82", 20).send().await?;
    let own = if one.body == other.body { "one for both" } else { "each its own" };
    let (one, other) = (one.status.as_u16(), other.status.as_u16());
    Ok(format!("{}, {one} and {other}, {own}", count(demo.charges().await? - before)))
}

/// Longer than the scenario takes: the gateway is killed before the service answers.
const LONGER_THAN_SCENARIO: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

async fn killed(demo: &mut DemoProcesses) -> Observed {
    let before = demo.charges().await?;
    demo.delay(LONGER_THAN_SCENARIO).await?;
    let cut_off = tokio::spawn(demo.pay("acme", "order-83", 30).send());
    while demo.charges().await? == before {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    demo.kill_gateway().await?;
    // The client gets a broken connection instead of an answer.
    let _ = cut_off.await;
    demo.delay(Duration::ZERO).await?;
    demo.restart_gateway().await?;
    let first = demo.charges().await? - before;
    let answer = loop {
        let answer = demo.pay("acme", "order-83", 30).send().await?;
        // Until the lease of the killed gateway ends, its request counts as running.
        if !refusal(&answer).ends_with("in-progress") {
            break answer;
        }
        tokio::time::sleep(POLL_INTERVAL * 10).await;
    };
    let second = demo.charges().await? - before - first;
    let second = if second == 0 { "no second one".into() } else { format!("then {second} more") };
    let states: Vec<&str> =
        unknown_receipts(demo).await?.iter().map(|receipt| receipt.state.name()).collect();
    Ok(format!("{}, {second}, {}, its receipt is {}", count(first), refusal(&answer), states.join(", ")))
}

async fn settled(demo: &DemoProcesses) -> Observed {
    let ledger = demo.ledger().await?;
    let charge =
        ledger.ledger.iter().find(|charge| charge.amount == 30).ok_or("no charge of 30 in the ledger")?;
    let recorded = service::answer(&charge.id, charge.amount);
    let receipts = unknown_receipts(demo).await?;
    let receipt = receipts.first().ok_or("no receipt is unknown")?;
    let settlement = json!({
        "scope": receipt.scope, "operation": receipt.operation, "key": receipt.key, "fence": receipt.fence,
        "done": {"verdict": "succeeded", "http": {
            "status": 201, "headers": [["content-type", "application/json"]], "body": recorded,
        }},
    });
    let call = HttpCall::new(Method::POST, demo.admin(), "/v1/settle").json(settlement.to_string());
    let told = call.send().await?;
    if told.status != StatusCode::NO_CONTENT {
        return Ok(format!("settling was answered with {}", refusal(&told)));
    }
    let answer = demo.pay("acme", "order-83", 30).send().await?;
    let body =
        if answer.body == recorded.as_bytes() { "the charge from the ledger" } else { "something else" };
    let charges = count(demo.charges().await? - ledger.charges);
    Ok(format!("{charges}, {} with {body}, {}", answer.status.as_u16(), replay_mark(&answer)))
}

/// The receipts with an unknown outcome.
async fn unknown_receipts(demo: &DemoProcesses) -> Result<Vec<ReceiptShown>, String> {
    let answer = HttpCall::new(Method::GET, demo.admin(), "/v1/receipts?state=unknown").send().await?;
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

fn replay_mark(answer: &HttpAnswer) -> &'static str {
    if is_replayed(answer) { "marked as replayed" } else { "not marked as replayed" }
}

fn is_replayed(answer: &HttpAnswer) -> bool {
    answer.field("idempotent-replayed") == Some("true")
}

/// The header fields that a replay must repeat, in order.
fn replayed_fields(answer: &HttpAnswer) -> Vec<(String, Vec<u8>)> {
    let differing = ["date", "idempotent-replayed", "idempotency-expires"];
    let fields = answer.headers.iter().filter(|(name, _)| !differing.contains(&name.as_str()));
    fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

/// The status and the name of the problem.
fn refusal(answer: &HttpAnswer) -> String {
    let problem: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let name = problem.as_ref().and_then(|problem| problem["type"].as_str()?.rsplit(':').next());
    format!("{} {}", answer.status.as_u16(), name.unwrap_or("without a problem"))
}
