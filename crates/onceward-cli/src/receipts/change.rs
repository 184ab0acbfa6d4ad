//! `onceward receipts cancel`, `erase`, `dead retry` and `dead discard`: changes of one receipt, or of many.

use super::admin_client::AdminClient;
use super::bulk::{Steps, Target, TargetArgs, WhoArgs, Wording};
use super::{IntentArgs, confirm, report, table, value_parsers};
use crate::admin::shape::{CloseAsked, EraseAsked, IntentAsked, PolicyAsked, Preset, ReceiptShown, State};

/// How an intent is closed.
#[derive(clap::Args)]
pub struct CloseArgs {
    /// How long retries are refused: http 24 hours, queue 7 days, ledger forever.
    #[arg(long, value_parser = value_parsers::preset(), default_value = "http")]
    preset: Preset,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
}

pub async fn retry_dead(
    client: &AdminClient,
    target: TargetArgs,
    who: &WhoArgs,
    yes: bool,
    json: bool,
) -> Result<(), String> {
    let retry = async |intent: IntentArgs| {
        let IntentArgs { scope, operation, key } = intent;
        let (by, reason) = (who.by(), who.reason.clone());
        client.retry_dead(&IntentAsked { scope, operation, key, by, reason }).await
    };
    match target.into_target(Some(State::Dead))? {
        Target::One(intent) => {
            retry(intent).await?;
            report(json, "retried", "It waits for its next try.");
            Ok(())
        }
        Target::Many(bulk) => {
            let wording = Wording {
                done_to: "retried",
                question: "Each is tried again, from the first try on. Retry them?",
                steps: Steps::AreReceipts,
            };
            let change = async |receipt: &ReceiptShown| retry(IntentArgs::of(receipt)).await;
            bulk.run(client, who, wording, yes, json, change).await
        }
    }
}

/// Sends one dead webhook again under a new key.
pub async fn redrive_dead(
    client: &AdminClient,
    target: TargetArgs,
    who: &WhoArgs,
    yes: bool,
    json: bool,
) -> Result<(), String> {
    let Target::One(intent) = target.into_target(Some(State::Dead))? else {
        return Err("--new-key is for one webhook at a time; name its scope, operation and key".into());
    };
    let question = "The service knows nothing of the new key: if one of the tries took effect, it takes effect twice. \
                    Send it?";
    confirm_one(client, &intent, yes, question).await?;
    let IntentArgs { scope, operation, key } = intent;
    let (by, reason) = (who.by(), who.reason.clone());
    client.redrive_dead(&IntentAsked { scope, operation, key, by, reason }).await?;
    report(json, "redriven", "It is delivered under a new key. It may take effect twice.");
    Ok(())
}

pub async fn discard_dead(
    client: &AdminClient,
    target: TargetArgs,
    closing: &CloseArgs,
    who: &WhoArgs,
    json: bool,
) -> Result<(), String> {
    match target.into_target(Some(State::Dead))? {
        Target::One(intent) => {
            let question = "It is not run again, and every retry is refused. Discard it?";
            confirm_one(client, &intent, closing.yes, question).await?;
            client.discard_dead(&closing.of(intent, who)).await?;
            report(json, "discarded", "Discarded. Every retry is refused.");
            Ok(())
        }
        Target::Many(bulk) => {
            let question = "None is run again, and every retry is refused. Discard them?";
            let wording = Wording { done_to: "discarded", question, steps: Steps::AreReceipts };
            let change = async |receipt: &ReceiptShown| {
                client.discard_dead(&closing.of(IntentArgs::of(receipt), who)).await
            };
            bulk.run(client, who, wording, closing.yes, json, change).await
        }
    }
}

pub async fn cancel(
    client: &AdminClient,
    intent: IntentArgs,
    closing: &CloseArgs,
    who: &WhoArgs,
    json: bool,
) -> Result<(), String> {
    let question = "It is not run, and every retry is refused. Cancel it?";
    confirm_one(client, &intent, closing.yes, question).await?;
    client.cancel(&closing.of(intent, who)).await?;
    report(json, "cancelled", "Cancelled. Every retry is refused.");
    Ok(())
}

pub async fn erase(
    client: &AdminClient,
    target: TargetArgs,
    reopen: bool,
    who: &WhoArgs,
    yes: bool,
    json: bool,
) -> Result<(), String> {
    let erase = async |intent: IntentArgs| {
        let IntentArgs { scope, operation, key } = intent;
        let (by, reason) = (who.by(), who.reason.clone());
        client.erase(&EraseAsked { scope, operation, key, reopen, by, reason }).await
    };
    let (done_to, question) = if reopen {
        (
            "removed, and may run again",
            "The receipt is removed, and THE SAME INTENT MAY RUN AGAIN. Reopen it?",
        )
    } else {
        ("erased", "What it says is removed permanently; what is done stays done. Erase it?")
    };
    match target.into_target(None)? {
        Target::One(intent) => {
            confirm_one(client, &intent, yes, question).await?;
            erase(intent).await?;
            let text = if reopen {
                "Removed. The key is free, and the same intent may run again."
            } else {
                "Erased. Other processes may give the answer for another minute."
            };
            report(json, if reopen { "reopened" } else { "erased" }, text);
            Ok(())
        }
        Target::Many(bulk) => {
            let change = async |receipt: &ReceiptShown| erase(IntentArgs::of(receipt)).await;
            bulk.run(
                client,
                who,
                Wording { done_to, question, steps: Steps::GoWithTheirIntent },
                yes,
                json,
                change,
            )
            .await
        }
    }
}

async fn confirm_one(
    client: &AdminClient,
    intent: &IntentArgs,
    yes: bool,
    question: &str,
) -> Result<(), String> {
    if !yes {
        eprint!("{}", table::details(&intent.find(client).await?));
        confirm(question)?;
    }
    Ok(())
}

impl CloseArgs {
    fn of(&self, intent: IntentArgs, who: &WhoArgs) -> CloseAsked {
        let IntentArgs { scope, operation, key } = intent;
        let policy = PolicyAsked { preset: self.preset, ..PolicyAsked::default() };
        CloseAsked { scope, operation, key, policy, by: who.by(), reason: who.reason.clone() }
    }
}
