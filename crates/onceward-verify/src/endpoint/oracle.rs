//! The effect oracle: reads the number of effects so far from the service or from a command.

use std::time::Duration;

use super::check::Effects;
use super::error::{Error, ErrorKind, Result};
use super::http1;
use super::message::Request;
use super::place::Place;
use super::sql_client::SqlClient;

/// A number that is not there by then will not come.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the number of effects is read.
#[derive(Clone, Debug)]
pub(super) enum Oracle {
    Unseen,
    Url { place: Place, pointer: String },
    Command(String),
    Sql { client: SqlClient, query: String },
}

impl Oracle {
    pub(super) fn read(effects: &Effects, place: Option<Place>) -> Result<Self> {
        Ok(match (effects, place) {
            (Effects::Url { pointer, .. }, Some(place)) => Self::Url { place, pointer: pointer.clone() },
            (Effects::Command(command), _) => Self::Command(command.clone()),
            (Effects::Sql { url, query }, _) => {
                Self::Sql { client: SqlClient::read(url)?, query: query.clone() }
            }
            _ => Self::Unseen,
        })
    }

    pub(super) fn sees(&self) -> bool {
        !matches!(self, Self::Unseen)
    }

    /// The number of effects so far; none if nobody counts them.
    pub(super) async fn count(&self) -> Result<Option<i64>> {
        let (text, pointer, hint) = match self {
            Self::Unseen => return Ok(None),
            Self::Url { place, pointer } => {
                (ask(place).await?, pointer.as_str(), " (is --effects-pointer missing?)")
            }
            Self::Command(command) => (run(command).await?, "", " (the command must print nothing else)"),
            Self::Sql { client, query } => {
                (client.ask(query).await?, "", " (the query must give one number)")
            }
        };
        number(&text, pointer, hint).map(Some)
    }
}

async fn ask(place: &Place) -> Result<String> {
    let failed =
        |why: String| Error::new(ErrorKind::Unreachable, format!("effects: {}: {why}", place.as_str()));
    let request = Request {
        place: place.clone(),
        method: "GET".to_owned(),
        fields: Vec::new(),
        body: bytes::Bytes::new(),
        key: String::new(),
        label: String::new(),
    };
    let answer = async {
        let held = http1::hold(&request).await?;
        held.release()?;
        held.answer().await
    };
    let answer = tokio::time::timeout(READ_TIMEOUT, answer)
        .await
        .map_err(|_| failed("no answer in ten seconds".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    if answer.status != 200 {
        return Err(failed(format!("answered {answer}")));
    }
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

async fn run(command: &str) -> Result<String> {
    let mut shell = tokio::process::Command::new("sh");
    shell.args(["-c", command]);
    printed(shell, command).await
}

/// What a command prints.
pub(super) async fn printed(mut command: tokio::process::Command, name: &str) -> Result<String> {
    let failed = |why: String| Error::new(ErrorKind::Unreachable, format!("effects: `{name}`: {why}"));
    let output = command.stdin(std::process::Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(READ_TIMEOUT, output)
        .await
        .map_err(|_| failed("printed nothing in ten seconds".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn number(text: &str, pointer: &str, hint: &str) -> Result<i64> {
    let wrong = |what: &str| {
        let excerpt: String = text.trim().chars().take(80).collect();
        Error::new(ErrorKind::Unfit, format!("effects: {what} in `{excerpt}`"))
    };
    if pointer.is_empty() {
        return text.trim().parse().map_err(|_| wrong(&format!("no plain number{hint}")));
    }
    let json: serde_json::Value = serde_json::from_str(text).map_err(|_| wrong("no JSON"))?;
    let found = json.pointer(pointer).ok_or_else(|| wrong(&format!("nothing at {pointer}")))?;
    let as_text = || found.as_str().and_then(|text| text.trim().parse().ok());
    found.as_i64().or_else(as_text).ok_or_else(|| wrong(&format!("no number at {pointer}")))
}

#[cfg(test)]
#[path = "oracle_test.rs"]
mod tests;
