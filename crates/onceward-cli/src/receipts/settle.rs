//! Ending a doubt from the command line.

use super::remote::Remote;
use super::{Which, choices, confirm, say, table, words};
use crate::admin::shape::{HttpShown, OutcomeGiven, PolicyAsked, Preset, SettleAsked, Verdict};

/// The answer that every retry gets from now on.
#[derive(clap::Args)]
pub struct AnswerGiven {
    /// Its status: for a request through the gateway.
    #[arg(long, value_name = "CODE", conflicts_with_all = ["verdict", "not_done"])]
    status: Option<u16>,
    /// Its body.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    body: String,
    /// A field of it, as "name: value". Without a content type, one is chosen by the body.
    #[arg(long, value_name = "FIELD", conflicts_with_all = ["verdict", "not_done"])]
    header: Vec<String>,
    /// How it ended: for a claim through the receipts API, whose outcome has no status.
    #[arg(long, value_parser = choices::verdict(), conflicts_with = "not_done")]
    verdict: Option<Verdict>,
    /// How long it is kept: http 24 hours, queue 7 days, ledger forever.
    #[arg(long, value_parser = choices::preset(), default_value = "http")]
    pub preset: Preset,
}

/// What keeps a tired person from a slip.
#[derive(clap::Args)]
pub struct Care {
    /// Only if the receipt still speaks of this run.
    #[arg(long, value_name = "NUMBER")]
    fence: Option<u64>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// Says what became of an effect in doubt, once it is certain that this is meant.
pub async fn settle(
    remote: &Remote,
    which: Which,
    done: Option<OutcomeGiven>,
    preset: Preset,
    force: bool,
    care: &Care,
    json: bool,
) -> Result<(), String> {
    let receipt = which.find(remote).await?;
    let fence = receipt.fence.ok_or("the receipt cannot be read, so it cannot be settled")?;
    if let Some(expected) = care.fence
        && expected != fence
    {
        return Err(format!("the receipt speaks of run {fence} now, not {expected}; look again"));
    }
    if !words::can_be_settled(&receipt) {
        return Err(format!("there is nothing to settle. {}", words::meaning(&receipt)));
    }
    if !care.yes {
        eprint!("{}", table::card(&receipt));
        confirm(match &done {
            Some(_) => "It happened, and every retry gets the answer that you give. Settle it so?",
            None => "It did NOT happen, and the next retry runs. Settle it so?",
        })?;
    }
    let policy = PolicyAsked { preset, ..PolicyAsked::default() };
    let not_done = done.is_none();
    let Which { scope, operation, key } = which;
    remote.settle(&SettleAsked { scope, operation, key, fence, done, not_done, force, policy }).await?;
    say(
        json,
        "settled",
        if not_done {
            "Settled: not done. The next retry runs."
        } else {
            "Settled: done. Every retry gets this answer."
        },
    );
    Ok(())
}

impl AnswerGiven {
    pub fn read(&self) -> Result<OutcomeGiven, String> {
        let none = OutcomeGiven { verdict: Verdict::Succeeded, body: None, body_base64: None, http: None };
        let Some(status) = self.status else {
            let verdict = self.verdict.ok_or(
                "say what every retry is to get: --status CODE for a request through the gateway, --verdict for a claim through the receipts API",
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
