//! Which receipts a command is about: one by its id, or all that fit conditions.

use std::str::FromStr;

use super::value_parsers;
use crate::admin::shape::State;
use crate::config::Period;

/// Which receipts. Empty fields fit all.
#[derive(Clone, Debug, Default)]
pub struct ReceiptFilter {
    pub scope: Option<String>,
    /// What the caller's requests carry; the gateway computes the scope from it.
    pub scope_from: Vec<String>,
    pub operation: Option<String>,
    pub operation_prefix: Option<String>,
    pub key: Option<String>,
    pub state: Option<State>,
    pub error: Option<String>,
    pub older_than: Option<Period>,
    pub younger_than: Option<Period>,
}

/// The options of lists.
#[derive(clap::Args)]
pub struct FilterArgs {
    /// Only this scope.
    #[arg(long)]
    scope: Option<String>,
    /// Only the scope of callers whose requests carry this, such as "X-Tenant: acme" or "jwt:sub=alice". The gateway
    /// computes it. Repeat it for scopes of several fields, and give "jwt:iss=ISSUER" too where tokens name theirs.
    #[arg(long, value_name = "FIELD", conflicts_with = "scope")]
    scope_from: Vec<String>,
    /// Only this operation, such as "POST /charges".
    #[arg(long)]
    operation: Option<String>,
    /// Only operations that begin with this text.
    #[arg(long, value_name = "PREFIX", conflicts_with = "operation")]
    operation_prefix: Option<String>,
    /// Only this key.
    #[arg(long)]
    key: Option<String>,
    /// Only those whose last error contains this text.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only those whose last error is that the service answered with this status, such as 502.
    #[arg(long, value_name = "CODE", conflicts_with = "error", value_parser = answered)]
    status: Option<Answered>,
    /// Only those created at least this long ago, such as 30m, 2h or 7d.
    #[arg(long, value_name = "TIME")]
    older_than: Option<Period>,
    /// Only those created less than this long ago.
    #[arg(long, value_name = "TIME")]
    younger_than: Option<Period>,
    /// No more than this many; lists show 50 if nothing is said, and `export` takes all.
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<usize>,
}

impl FilterArgs {
    pub fn into_filter(self, state: Option<State>) -> ReceiptFilter {
        ReceiptFilter {
            scope: self.scope,
            scope_from: self.scope_from,
            operation: self.operation,
            operation_prefix: self.operation_prefix,
            key: self.key,
            state,
            error: self.error.or(self.status.map(|answered| answered.0)),
            older_than: self.older_than,
            younger_than: self.younger_than,
        }
    }
}

/// The text of a last error about an answer of the service.
#[derive(Clone, Debug)]
pub struct Answered(String);

fn answered(status: &str) -> Result<Answered, String> {
    let status: u16 = status.parse().ok().filter(|status| (100..=599).contains(status)).ok_or_else(|| {
        format!(
            "`{status}` is not a status between 100 and 599; without an answer of the service there is none"
        )
    })?;
    Ok(Answered(format!("the service answered {status}")))
}

/// One condition of a bulk command, as `NAME=VALUE`.
#[derive(Clone, Debug)]
pub enum Condition {
    Scope(String),
    ScopeFrom(String),
    Operation(String),
    OperationPrefix(String),
    Key(String),
    State(State),
    Error(String),
    Status(Answered),
    OlderThan(Period),
    YoungerThan(Period),
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a condition such as operation=\"POST /charges\"; the names are scope, scope-from, operation, \
                 operation-prefix, key, state, status, error, older-than and younger-than"
            )
        };
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let period = || value.parse().map_err(|error| format!("{name}: {error}"));
        Ok(match name {
            "scope" => Self::Scope(value.into()),
            "scope-from" => Self::ScopeFrom(value.into()),
            "operation" => Self::Operation(value.into()),
            "operation-prefix" => Self::OperationPrefix(value.into()),
            "key" => Self::Key(value.into()),
            "state" => Self::State(value_parsers::state_named(value)?),
            "error" => Self::Error(value.into()),
            "status" => Self::Status(answered(value)?),
            "older-than" => Self::OlderThan(period()?),
            "younger-than" => Self::YoungerThan(period()?),
            _ => return Err(wrong()),
        })
    }
}

impl ReceiptFilter {
    /// All of the conditions together. One that is given twice is refused: if only the last counted, a bulk command would
    /// change more than it was asked to.
    pub fn all_of(conditions: Vec<Condition>) -> Result<Self, String> {
        fn once<T>(slot: &mut Option<T>, value: T, name: &str) -> Result<(), String> {
            match slot.replace(value) {
                None => Ok(()),
                Some(_) => Err(format!("--where {name} can be given only once")),
            }
        }
        let mut filter = Self::default();
        for condition in conditions {
            match condition {
                Condition::Scope(scope) => once(&mut filter.scope, scope, "scope")?,
                Condition::ScopeFrom(field) => filter.scope_from.push(field),
                Condition::Operation(operation) => once(&mut filter.operation, operation, "operation")?,
                Condition::OperationPrefix(prefix) => {
                    once(&mut filter.operation_prefix, prefix, "operation-prefix")?;
                }
                Condition::Key(key) => once(&mut filter.key, key, "key")?,
                Condition::State(state) => once(&mut filter.state, state, "state")?,
                Condition::Error(text) | Condition::Status(Answered(text)) => {
                    once(&mut filter.error, text, "error or status")?;
                }
                Condition::OlderThan(age) => once(&mut filter.older_than, age, "older-than")?,
                Condition::YoungerThan(age) => once(&mut filter.younger_than, age, "younger-than")?,
            }
        }
        Ok(filter)
    }
}
