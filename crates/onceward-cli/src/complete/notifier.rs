//! Notifies a service of an unfinished intent, with an HTTP request or a command.

use std::process::Stdio;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use tokio::process::Command;
use tokio::time::timeout;

use super::unfinished::Unfinished;

/// How the service is notified.
pub enum Notifier {
    /// With a POST request.
    Post { client: reqwest::Client, url: reqwest::Url },
    /// With a command that gets the intent in its environment.
    Exec { command: String, at_most: Duration },
}

impl Notifier {
    pub fn post(url: &str, at_most: Duration) -> Result<Self, String> {
        let url: reqwest::Url = url.parse().map_err(|error| format!("--to {url}: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("--to {url}: the address must begin with http:// or https://"));
        }
        // Fails only if the same provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Redirects are not followed: only the address that the operator gave is notified.
        let client =
            reqwest::Client::builder().timeout(at_most).redirect(reqwest::redirect::Policy::none()).build();
        Ok(Self::Post { client: client.map_err(|error| error.to_string())?, url })
    }

    pub fn exec(command: &str, at_most: Duration) -> Self {
        Self::Exec { command: command.to_owned(), at_most }
    }

    /// Notifies the service, and waits for its reply. An error is only printed; the receipt decides.
    pub async fn notify(&self, left: &Unfinished) -> Result<(), String> {
        let (id, fence) = (&left.id, left.fence.0);
        match self {
            Self::Post { client, url } => {
                let body = serde_json::json!({
                    "scope": id.scope(), "operation": id.operation(), "key": id.key(), "fence": fence,
                });
                let request = client.post(url.clone()).header(CONTENT_TYPE, "application/json");
                let answer = request.body(body.to_string()).send().await.map_err(|error| chain(&error))?;
                if answer.status().is_success() { Ok(()) } else { Err(answer.status().to_string()) }
            }
            Self::Exec { command, at_most } => {
                let mut command = shell(command);
                command.env("ONCEWARD_SCOPE", id.scope()).env("ONCEWARD_OPERATION", id.operation());
                command.env("ONCEWARD_KEY", id.key()).env("ONCEWARD_FENCE", fence.to_string());
                match timeout(*at_most, command.status()).await {
                    Ok(Ok(status)) if status.success() => Ok(()),
                    Ok(Ok(status)) => Err(status.to_string()),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err(format!("did not end within {at_most:?}, and was killed")),
                }
            }
        }
    }
}

fn shell(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(line).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// An error with all its causes. The outermost one only says that sending failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
