//! `onceward receipts dead export`: dead intents with their inputs, as JSON lines.

use serde::Serialize;

use super::admin_client::AdminClient;
use super::filter::FilterArgs;
use super::shell_arguments;
use crate::admin::dead_input::DeadInputShown;
use crate::admin::shape::{ReceiptShown, State};

/// One line: the receipt, and what it was to do.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    receipt: &'a ReceiptShown,
    #[serde(flatten)]
    input: DeadInputShown,
}

/// Prints all that match. The inputs are read one by one, so that no answer is larger than one input.
pub async fn dead(client: &AdminClient, filter: FilterArgs) -> Result<(), String> {
    let limit = filter.limit.unwrap_or(usize::MAX);
    let (receipts, _) = client.list(&filter.into_filter(Some(State::Dead)), limit).await?;
    for receipt in &receipts {
        // What cannot be read has no input either.
        let input = match &receipt.unreadable {
            Some(_) => DeadInputShown::default(),
            None => client.dead_input(receipt).await.map_err(|why| of_one(receipt, &why))?,
        };
        println!("{}", serde_json::to_string(&Line { receipt, input }).expect("it is JSON"));
    }
    Ok(())
}

/// An operator may have decided about one since it was listed: the export ends there, and says so.
fn of_one(receipt: &ReceiptShown, why: &str) -> String {
    format!("the export is not complete: {}: {why}", shell_arguments(receipt))
}
