//! reqwest-middleware with reqwest-retry's transient policy and its exponential back-off, three retries.

use reqwest_middleware::ClientBuilder;
use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let [url, intent] = ["ONCEWARD_URL", "ONCEWARD_INTENT"].map(|name| std::env::var(name).expect("it is set"));
    let policy = ExponentialBackoff::builder().build_with_max_retries(3);
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(RetryTransientMiddleware::new_with_policy(policy))
        .build();
    let answer = client
        .post(url)
        .header("Idempotency-Key", &intent)
        .header("Content-Type", "application/json")
        .body(format!(r#"{{"intent":"{intent}","amount":12}}"#))
        .send()
        .await;
    match answer {
        Ok(answer) if answer.status().is_success() => std::process::ExitCode::SUCCESS,
        _ => std::process::ExitCode::FAILURE,
    }
}
