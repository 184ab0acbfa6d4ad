//! Commands about one receipt or about many: what is to be changed, who asks for it and why, at which pace.

use std::collections::HashSet;
use std::time::Duration;

use onceward::Id;
use tokio::time::{MissedTickBehavior, interval};

use super::admin_client::AdminClient;
use super::explain::without_control_characters;
use super::filter::{Condition, ReceiptFilter};
use super::{IntentArgs, confirm, print_json, shell_arguments, table};
use crate::admin::shape::{ReceiptShown, State};

/// One receipt by its id, or all that fit conditions.
#[derive(clap::Args)]
pub struct TargetArgs {
    /// The scope: the caller.
    #[arg(required_unless_present = "conditions")]
    scope: Option<String>,
    /// The operation, such as "POST /charges".
    #[arg(required_unless_present = "conditions")]
    operation: Option<String>,
    /// The idempotency key.
    #[arg(required_unless_present = "conditions")]
    key: Option<String>,
    /// All receipts that fit this, instead of one: scope=…, scope-from="X-Tenant: acme", operation="POST /charges",
    /// operation-prefix=…, key=…, state=unknown, status=504, error=…, older-than=1h, younger-than=3h. Repeat it: all must fit.
    #[arg(long = "where", id = "conditions", value_name = "NAME=VALUE", conflicts_with = "scope")]
    conditions: Vec<Condition>,
    /// With --where: only show what would be changed.
    #[arg(long, requires = "conditions")]
    dry_run: bool,
    /// With --where: no more than this many.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000)]
    limit: usize,
    /// With --where: changes per second.
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pace: u32,
}

/// Who asks for a change, and why. Both are recorded; see `onceward receipts audit`.
#[derive(clap::Args, Clone)]
pub struct WhoArgs {
    /// Who asks for this [default: the name of your account].
    #[arg(long, value_name = "NAME", env = "ONCEWARD_BY")]
    by: Option<String>,
    /// Why. Required with --where.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

impl WhoArgs {
    /// Who asks: as given, or the name of the account.
    pub fn by(&self) -> Option<String> {
        self.by.clone().or_else(|| std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok())
    }
}

/// What a command is about.
pub enum Target {
    One(IntentArgs),
    Many(Bulk),
}

/// Many receipts, and how they are changed.
pub struct Bulk {
    filter: ReceiptFilter,
    dry_run: bool,
    limit: usize,
    pace: u32,
}

impl TargetArgs {
    /// `state` is the state of the receipts that the command is for, unless a condition names one.
    pub fn into_target(self, state: Option<State>) -> Result<Target, String> {
        if let (Some(scope), Some(operation), Some(key)) = (self.scope, self.operation, self.key) {
            return Ok(Target::One(IntentArgs { scope, operation, key }));
        }
        let mut filter = ReceiptFilter::all_of(self.conditions)?;
        filter.state = filter.state.or(state);
        Ok(Target::Many(Bulk { filter, dry_run: self.dry_run, limit: self.limit, pace: self.pace }))
    }
}

/// What a bulk command does, in words.
#[derive(Clone, Copy)]
pub struct Wording {
    /// As in "3 receipts would be settled as done".
    pub done_to: &'static str,
    /// The question before it is done.
    pub question: &'static str,
    pub steps: Steps,
}

/// What a bulk command does about the receipts of steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Steps {
    /// They are changed like others.
    AreReceipts,
    /// The server changes them with the intent that they belong to.
    GoWithTheirIntent,
}

/// Removes the steps of intents that are listed too.
fn drop_steps(receipts: &mut Vec<ReceiptShown>) {
    let id = |receipt: &ReceiptShown| Id::from_columns(&receipt.scope, &receipt.operation, &receipt.key).ok();
    let listed: HashSet<Id> = receipts.iter().filter_map(id).collect();
    let is_above =
        |id: Id| std::iter::successors(id.parent(), Id::parent).any(|above| listed.contains(&above));
    receipts.retain(|receipt| !id(receipt).is_some_and(is_above));
}

impl Bulk {
    /// Changes each receipt that fits, after confirmation. Fails at the end if some were refused.
    pub async fn run(
        &self,
        client: &AdminClient,
        who: &WhoArgs,
        wording: Wording,
        yes: bool,
        json: bool,
        change: impl AsyncFn(&ReceiptShown) -> Result<(), String>,
    ) -> Result<(), String> {
        let Wording { done_to, question, .. } = wording;
        if who.reason.is_none() && !self.dry_run {
            return Err("a change of many receipts is recorded with its reason: add --reason TEXT".into());
        }
        let (mut receipts, more) = client.list(&self.filter, self.limit).await?;
        if wording.steps == Steps::GoWithTheirIntent {
            drop_steps(&mut receipts);
        }
        let count = receipts.len();
        if json && self.dry_run {
            print_json(&receipts);
            return Ok(());
        }
        if self.dry_run || !yes {
            eprint!("{}", table::table(&receipts, more));
        }
        if self.dry_run || receipts.is_empty() {
            println!("{count} receipts would be {done_to}. Nothing was changed.");
            return Ok(());
        }
        if !yes {
            confirm(&format!("{count} receipts: {question}"))?;
        }
        let mut ticks = interval(Duration::from_secs(1) / self.pace);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut refused = Vec::new();
        for receipt in &receipts {
            ticks.tick().await;
            if let Err(why) = change(receipt).await {
                refused.push((receipt, why));
            }
        }
        let changed = count - refused.len();
        if json {
            let refused: Vec<_> = refused
                .iter()
                .map(|(receipt, why)| serde_json::json!({ "scope": receipt.scope, "operation": receipt.operation, "key": receipt.key, "why": why }))
                .collect();
            print_json(
                &serde_json::json!({ "matched": count, "changed": changed, "refused": refused, "more": more }),
            );
        } else {
            println!("{changed} of {count} receipts were {done_to}.");
            if more {
                println!("There are more: run it again, or raise --limit.");
            }
        }
        for (receipt, why) in &refused {
            eprintln!("refused: {}: {}", shell_arguments(receipt), without_control_characters(why));
        }
        let by = who.by().unwrap_or_else(|| "unnamed".into());
        let reason = who.reason.as_deref().unwrap_or_default();
        eprintln!("audit: {changed} of {count} {done_to}, by {by}: {reason}");
        if refused.is_empty() { Ok(()) } else { Err(format!("{} receipts were refused", refused.len())) }
    }
}
