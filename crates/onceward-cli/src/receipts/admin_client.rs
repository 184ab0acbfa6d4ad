//! A client of the receipts API.

use http::{Method, StatusCode, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::filter::ReceiptFilter;
use crate::address::with_scheme;
use crate::admin::dead_input::DeadInputShown;
use crate::admin::shape::{
    AuditEntry, AuditShown, CloseAsked, EraseAsked, IntentAsked, ProblemShown, ReceiptShown, ReceiptsShown,
    ScopesShown, SettleAsked, State,
};
use crate::config::Period;
use crate::http_call::{HttpAnswer, HttpCall};

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
        filter: &ReceiptFilter,
        limit: usize,
    ) -> Result<(Vec<ReceiptShown>, bool), String> {
        let scopes = if filter.scope_from.is_empty() {
            vec![filter.scope.clone()]
        } else {
            self.scopes(&filter.scope_from).await?.into_iter().map(Some).collect()
        };
        let mut receipts = Vec::new();
        for (index, scope) in scopes.iter().enumerate() {
            let more = self.list_scope(filter, scope.as_deref(), limit, &mut receipts).await?;
            if more || receipts.len() >= limit {
                return Ok((receipts, more || index + 1 < scopes.len()));
            }
        }
        Ok((receipts, false))
    }

    /// Adds the receipts of one scope, or of all, until there are `limit`. Returns whether there are more.
    async fn list_scope(
        &self,
        filter: &ReceiptFilter,
        scope: Option<&str>,
        limit: usize,
        receipts: &mut Vec<ReceiptShown>,
    ) -> Result<bool, String> {
        let ms = |period: Option<Period>| period.map(|Period(time)| time.as_millis().to_string());
        let (older, younger) = (ms(filter.older_than), ms(filter.younger_than));
        let mut cursor: Option<String> = None;
        loop {
            let left = (limit - receipts.len()).to_string();
            let query = [
                ("scope", scope),
                ("operation", filter.operation.as_deref()),
                ("operation_prefix", filter.operation_prefix.as_deref()),
                ("key", filter.key.as_deref()),
                ("state", filter.state.map(State::name)),
                ("error", filter.error.as_deref()),
                ("older_than_ms", older.as_deref()),
                ("younger_than_ms", younger.as_deref()),
                ("limit", Some(left.as_str())),
                ("cursor", cursor.as_deref()),
            ];
            let page: ReceiptsShown = read(&self.get("/v1/receipts", &query).await?)?;
            receipts.extend(page.receipts);
            cursor = page.next;
            if cursor.is_none() || receipts.len() >= limit {
                return Ok(cursor.is_some());
            }
        }
    }

    /// The scopes of callers whose requests carry these fields.
    async fn scopes(&self, fields: &[String]) -> Result<Vec<String>, String> {
        let from = fields.join("\n");
        let shown: ScopesShown = read(&self.get("/v1/scopes", &[("from", Some(&from))]).await?)?;
        Ok(shown.scopes)
    }

    /// All entries of the audit.
    pub async fn audit(&self) -> Result<Vec<AuditEntry>, String> {
        let (mut entries, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let query = [("limit", Some("1000")), ("cursor", cursor.as_deref())];
            let page: AuditShown = read(&self.get("/v1/audit", &query).await?)?;
            entries.extend(page.entries);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(entries);
            }
        }
    }

    pub async fn show(&self, scope: &str, operation: &str, key: &str) -> Result<ReceiptShown, String> {
        let query = [("scope", Some(scope)), ("operation", Some(operation)), ("key", Some(key))];
        read(&self.get("/v1/receipt", &query).await?)
    }

    /// What a dead intent was to do.
    pub async fn dead_input(&self, receipt: &ReceiptShown) -> Result<DeadInputShown, String> {
        let ReceiptShown { scope, operation, key, .. } = receipt;
        let query = [("scope", Some(&**scope)), ("operation", Some(operation)), ("key", Some(key))];
        read(&self.get("/v1/dead-input", &query).await?)
    }

    pub async fn settle(&self, asked: &SettleAsked) -> Result<(), String> {
        self.post("/v1/settle", asked).await
    }

    pub async fn retry_dead(&self, asked: &IntentAsked) -> Result<(), String> {
        self.post("/v1/retry-dead", asked).await
    }

    pub async fn redrive_dead(&self, asked: &IntentAsked) -> Result<(), String> {
        self.post("/v1/redrive-dead", asked).await
    }

    pub async fn discard_dead(&self, asked: &CloseAsked) -> Result<(), String> {
        self.post("/v1/discard-dead", asked).await
    }

    pub async fn cancel(&self, asked: &CloseAsked) -> Result<(), String> {
        self.post("/v1/cancel", asked).await
    }

    pub async fn erase(&self, asked: &EraseAsked) -> Result<(), String> {
        self.post("/v1/erase", asked).await
    }

    pub async fn post(&self, path: &str, asked: &impl Serialize) -> Result<(), String> {
        self.post_for(path, asked).await.map(drop)
    }

    /// The same, for what has something to say.
    pub async fn post_for(&self, path: &str, asked: &impl Serialize) -> Result<HttpAnswer, String> {
        let body = serde_json::to_string(asked).expect("plain values are JSON");
        self.send(HttpCall::new(Method::POST, &self.authority, path).json(body)).await
    }

    pub async fn get(&self, path: &str, query: &[(&str, Option<&str>)]) -> Result<HttpAnswer, String> {
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

/// What an answer says.
pub fn read<T: DeserializeOwned>(answer: &HttpAnswer) -> Result<T, String> {
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
