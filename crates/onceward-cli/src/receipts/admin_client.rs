//! A client of the receipts API.

use http::{Method, StatusCode, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::with_scheme;
use crate::admin::shape::{
    CloseAsked, IntentAsked, ProblemShown, ReceiptShown, ReceiptsShown, SettleAsked, State,
};
use crate::http_call::{HttpAnswer, HttpCall};

/// Which receipts to list.
#[derive(Clone, Copy, Default)]
pub struct ReceiptFilter<'a> {
    pub scope: Option<&'a str>,
    pub operation: Option<&'a str>,
    pub operation_prefix: Option<&'a str>,
    pub key: Option<&'a str>,
    pub state: Option<State>,
}

/// A client of the admin listener of a running gateway.
pub struct AdminClient {
    authority: String,
    token: Option<String>,
}

impl AdminClient {
    /// A client of the listener at `http://host:port`.
    pub fn new(url: &str, token: Option<String>) -> Result<Self, String> {
        let wrong = || {
            format!("--admin {url}: not an address such as http://127.0.0.1:8081, localhost:8081 or :8081")
        };
        let uri: Uri = with_scheme(url).parse().map_err(|_| wrong())?;
        let plain = uri.scheme_str() == Some("http") && uri.path() == "/" && uri.query().is_none();
        let authority = uri.authority().filter(|_| plain).ok_or_else(wrong)?;
        let port = authority.port_u16().unwrap_or(80);
        Ok(Self { authority: format!("{}:{port}", authority.host()), token })
    }

    /// The receipts that match, at most `limit`, and whether there are more.
    pub async fn list(
        &self,
        filter: ReceiptFilter<'_>,
        limit: usize,
    ) -> Result<(Vec<ReceiptShown>, bool), String> {
        let mut receipts = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let left = (limit - receipts.len()).to_string();
            let query = [
                ("scope", filter.scope),
                ("operation", filter.operation),
                ("operation_prefix", filter.operation_prefix),
                ("key", filter.key),
                ("state", filter.state.map(State::name)),
                ("limit", Some(left.as_str())),
                ("cursor", cursor.as_deref()),
            ];
            let page: ReceiptsShown = read(&self.get("/v1/receipts", &query).await?)?;
            receipts.extend(page.receipts);
            cursor = page.next;
            if cursor.is_none() || receipts.len() >= limit {
                return Ok((receipts, cursor.is_some()));
            }
        }
    }

    pub async fn show(&self, scope: &str, operation: &str, key: &str) -> Result<ReceiptShown, String> {
        let query = [("scope", Some(scope)), ("operation", Some(operation)), ("key", Some(key))];
        read(&self.get("/v1/receipt", &query).await?)
    }

    pub async fn settle(&self, asked: &SettleAsked) -> Result<(), String> {
        self.post("/v1/settle", asked).await
    }

    pub async fn retry_dead(&self, asked: &IntentAsked) -> Result<(), String> {
        self.post("/v1/retry-dead", asked).await
    }

    pub async fn discard_dead(&self, asked: &CloseAsked) -> Result<(), String> {
        self.post("/v1/discard-dead", asked).await
    }

    pub async fn cancel(&self, asked: &CloseAsked) -> Result<(), String> {
        self.post("/v1/cancel", asked).await
    }

    pub async fn erase(&self, asked: &IntentAsked) -> Result<(), String> {
        self.post("/v1/erase", asked).await
    }

    async fn post(&self, path: &str, asked: &impl Serialize) -> Result<(), String> {
        let body = serde_json::to_string(asked).expect("plain values are JSON");
        self.send(HttpCall::new(Method::POST, &self.authority, path).json(body)).await.map(drop)
    }

    async fn get(&self, path: &str, query: &[(&str, Option<&str>)]) -> Result<HttpAnswer, String> {
        let query: Vec<String> = query
            .iter()
            .filter_map(|(name, value)| value.map(|value| format!("{name}={}", percent_encoded(value))))
            .collect();
        let path = format!("{path}?{}", query.join("&"));
        self.send(HttpCall::new(Method::GET, &self.authority, &path)).await
    }

    async fn send(&self, mut call: HttpCall) -> Result<HttpAnswer, String> {
        if let Some(token) = &self.token {
            call = call.field("authorization", &format!("Bearer {token}"));
        }
        let answer = call.send().await.map_err(|error| format!("cannot call the gateway: {error}"))?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let problem: Option<ProblemShown> = serde_json::from_slice(&answer.body).ok();
        Err(match (answer.status, problem) {
            (StatusCode::UNAUTHORIZED, _) => {
                "the gateway requires its admin token: set --token or ONCEWARD_ADMIN_TOKEN".into()
            }
            (_, Some(problem)) => format!("{}. {}", problem.title, problem.detail),
            (status, None) => format!("the answer was {status}; is this the admin address of a gateway?"),
        })
    }
}

fn read<T: DeserializeOwned>(answer: &HttpAnswer) -> Result<T, String> {
    serde_json::from_slice(&answer.body).map_err(|error| {
        format!("the answer cannot be read ({error}); is this the admin address of a gateway?")
    })
}

/// Percent-encodes a value of a query.
fn percent_encoded(value: &str) -> String {
    use std::fmt::Write;
    value.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            _ => write!(out, "%{byte:02X}").expect("writing to a string cannot fail"),
        }
        out
    })
}
