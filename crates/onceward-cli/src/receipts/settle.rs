//! `onceward receipts settle` and `release`: settle an unknown outcome.

use super::admin_client::AdminClient;
use super::bulk::{Steps, Target, WhoArgs, Wording};
use super::{confirm, explain, report, table, value_parsers};
use crate::admin::shape::{HttpShown, OutcomeGiven, PolicyAsked, Preset, ReceiptShown, SettleAsked, Verdict};

/// The answer that every retry gets from now on.
#[derive(clap::Args)]
pub struct AnswerArgs {
    /// The status of the answer, for a request through the gateway.
    #[arg(long, value_name = "CODE", conflicts_with_all = ["verdict", "not_done"])]
    status: Option<u16>,
    /// The body of the answer.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    body: String,
    /// A header field of the answer, as "name: value". Without a content type, one is derived from the body.
    #[arg(long, value_name = "FIELD", conflicts_with_all = ["verdict", "not_done"])]
    header: Vec<String>,
    /// The verdict, for a claim through the receipts API, whose outcome has no status.
    #[arg(long, value_parser = value_parsers::verdict(), conflicts_with = "not_done")]
    verdict: Option<Verdict>,
    /// How long the answer is kept: http 24 hours, queue 7 days, ledger forever.
    #[arg(long, value_parser = value_parsers::preset(), default_value = "http")]
    pub preset: Preset,
}

/// Protection against settling the wrong receipt.
#[derive(clap::Args)]
pub struct ConfirmArgs {
    /// Settle only if this is the fence of the receipt: no other run has begun.
    #[arg(long, value_name = "NUMBER")]
    fence: Option<u64>,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
}

/// A settlement that was asked for: the answer, or `None` if the effect did not happen.
pub struct SettleCommand {
    pub done: Option<OutcomeGiven>,
    pub preset: Preset,
    pub force: bool,
    pub who: WhoArgs,
}

impl SettleCommand {
    /// Settles one unknown outcome, or many, after confirmation.
    pub async fn run(
        &self,
        client: &AdminClient,
        target: Target,
        confirmation: &ConfirmArgs,
        json: bool,
    ) -> Result<(), String> {
        let intent = match target {
            Target::One(intent) => intent,
            Target::Many(bulk) => {
                if confirmation.fence.is_some() {
                    return Err("--fence names the run of one receipt; it does not go with --where".into());
                }
                let change = async |receipt: &ReceiptShown| self.settle(client, receipt).await;
                return bulk.run(client, &self.who, self.wording(), confirmation.yes, json, change).await;
            }
        };
        let receipt = intent.find(client).await?;
        if let (Some(expected), Some(fence)) = (confirmation.fence, receipt.fence)
            && expected != fence
        {
            return Err(format!(
                "the receipt has fence {fence}, not {expected}: another run has begun; check it again"
            ));
        }
        if receipt.unreadable.is_none() && !explain::can_be_settled(&receipt) {
            return Err(format!("there is nothing to settle. {}", explain::meaning(&receipt)));
        }
        if !confirmation.yes {
            eprint!("{}", table::details(&receipt));
            confirm(self.wording().question)?;
        }
        self.settle(client, &receipt).await?;
        report(
            json,
            "settled",
            match &self.done {
                None => "Settled: not done. The next retry runs.",
                Some(_) => "Settled: done. Every retry gets this answer.",
            },
        );
        Ok(())
    }

    async fn settle(&self, client: &AdminClient, receipt: &ReceiptShown) -> Result<(), String> {
        let fence = receipt.fence.ok_or("the receipt cannot be read, so it cannot be settled")?;
        let asked = SettleAsked {
            scope: receipt.scope.clone(),
            operation: receipt.operation.clone(),
            key: receipt.key.clone(),
            fence,
            done: self.done.clone(),
            not_done: self.done.is_none(),
            force: self.force,
            policy: PolicyAsked { preset: self.preset, ..PolicyAsked::default() },
            by: self.who.by(),
            reason: self.who.reason.clone(),
        };
        client.settle(&asked).await
    }

    fn wording(&self) -> Wording {
        match self.done {
            Some(_) => Wording {
                done_to: "settled as done",
                question: "It happened, and every retry gets the answer that you give. Settle it as done?",
                steps: Steps::AreReceipts,
            },
            None => Wording {
                done_to: "settled as not done",
                question: "It did NOT happen, and the next retry runs. Settle it as not done?",
                steps: Steps::AreReceipts,
            },
        }
    }
}

impl AnswerArgs {
    pub fn read(&self) -> Result<OutcomeGiven, String> {
        let none = OutcomeGiven { verdict: Verdict::Succeeded, body: None, body_base64: None, http: None };
        let Some(status) = self.status else {
            let verdict = self.verdict.ok_or(
                "the answer for retries is missing: give --status CODE for a request through the gateway, or --verdict for a claim through the receipts API",
            )?;
            return Ok(OutcomeGiven { verdict, body: Some(self.body.clone()), ..none });
        };
        let mut headers = Vec::new();
        for field in &self.header {
            let (name, value) =
                field.split_once(':').ok_or(format!("--header {field}: not `name: value`"))?;
            headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        let typed = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if !typed && !self.body.is_empty() {
            let json = serde_json::from_str::<serde_json::Value>(&self.body).is_ok();
            let media = if json { "application/json" } else { "text/plain; charset=utf-8" };
            headers.insert(0, ("content-type".into(), media.into()));
        }
        let verdict = if status < 400 { Verdict::Succeeded } else { Verdict::Failed };
        let http = HttpShown { status, headers, body: Some(self.body.clone()), body_base64: None };
        Ok(OutcomeGiven { verdict, http: Some(http), ..none })
    }
}
