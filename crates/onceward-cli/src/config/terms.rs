//! The terms of a route as they are written: any of them may be missing. Each is checked where it is read, so
//! that an error can name its line.

use std::collections::BTreeMap;
use std::fmt;

use http::{HeaderName, Method, StatusCode};
use onceward::{OnDuplicate, Policy, Retention};
use onceward_http::fingerprint::Pointer;
use onceward_http::problem::Problem;
use onceward_http::{Action, Route};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::pattern::Pattern;
use super::values::{Answers, Keep, Period, Size};
use crate::proxy::ForwardKey;

macro_rules! terms {
    ($($(#[$meta:meta])* $name:ident: $kind:ty,)+) => {
        /// The terms of `[defaults]` or of one `[[route]]`.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Terms { $($(#[$meta])* pub $name: Option<$kind>,)+ }

        impl Terms {
            /// These terms, and where they say nothing, those.
            pub fn over(&self, base: &Self) -> Self {
                Self { $($name: self.$name.clone().or_else(|| base.$name.clone()),)+ }
            }
        }
    };
}

terms! {
    path: Pattern,
    preset: Preset,
    methods: Vec<MethodName>,
    key: Key,
    key_form: Form,
    key_length_min: usize,
    key_pattern: String,
    scope: ScopeTerm,
    anonymous: Anonymous,
    operation: String,
    fingerprint: Compared,
    request_bytes_max: Size,
    response_bytes_max: Size,
    #[serde(deserialize_with = "lease")]
    lease: Period,
    on_duplicate: Duplicate,
    #[serde(deserialize_with = "wait")]
    wait_at_most: Period,
    outcomes: BTreeMap<Answers, ActionName>,
    keep: KeepTerm,
    on_unknown: Unknown,
    reconcile_url: String,
    on_expired: Expired,
    expired_kept: Keep,
    omit_fields: Vec<FieldName>,
    replay_cookies: bool,
    problem_status: BTreeMap<ProblemName, Status>,
    forward_key: ForwardKey,
    answer_timeout: Period,
    fail_open: bool,
}

/// A preset by its name.
#[derive(Clone, Debug)]
pub struct Preset(pub String);

/// Whether a key is required.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Key {
    Required,
    Optional,
    Ignored,
}

/// How strictly a key is read.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    Strict,
    Lenient,
    Raw,
}

/// What a request gets that does not say who asks.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anonymous {
    Share,
    Refuse,
}

/// What a duplicate gets while the first one runs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Duplicate {
    Wait,
    Conflict,
}

/// What happens when it is unknown whether the effect happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    Hold,
    Retry,
    Reconcile,
}

/// What a key past its retention gets.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expired {
    Run,
    Reject,
}

/// What an answer means for its key.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionName {
    Replay,
    Retry,
    Unknown,
}

impl From<ActionName> for Action {
    fn from(name: ActionName) -> Self {
        match name {
            ActionName::Replay => Self::Replay,
            ActionName::Retry => Self::Retry,
            ActionName::Unknown => Self::Unknown,
        }
    }
}

/// Where the scope comes from: `authorization`, `header:NAME`, `jwt:CLAIM`, `mtls` or `shared`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeTerm {
    Authorization,
    Header(HeaderName),
    Jwt(String),
    Mtls,
    Shared,
}

impl fmt::Display for ScopeTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authorization => f.write_str("authorization"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Jwt(claim) => write!(f, "jwt:{claim}"),
            Self::Mtls => f.write_str("mtls"),
            Self::Shared => f.write_str("shared"),
        }
    }
}

/// How long answers are kept: all of them, or by class.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a length of time such as \"24h\", \"forever\", or a table such as { 2xx = \"24h\", 4xx = \"1h\" }"
)]
pub enum KeepTerm {
    All(Keep),
    ByClass(BTreeMap<Answers, Keep>),
}

/// What of a request is compared.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compared {
    pub members_only: Option<Vec<MemberPointer>>,
    pub members_except: Option<Vec<MemberPointer>>,
    pub parameters_only: Option<Vec<String>>,
    pub parameters_except: Option<Vec<String>>,
    pub headers: Vec<FieldName>,
}

macro_rules! read_as {
    ($($(#[$meta:meta])* $name:ident($kind:ty), $read:expr;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name(pub $kind);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let read: fn(&str) -> Result<$kind, String> = $read;
                read(&text).map(Self).map_err(D::Error::custom)
            }
        }
    )+};
}

read_as! {
    /// A JSON pointer.
    MemberPointer(Pointer), |text| Pointer::parse(text).map_err(|error| error.to_string());
    /// The name of a header field.
    FieldName(HeaderName), |text| {
        HeaderName::try_from(text).map_err(|_| format!("`{text}` is no name of a header field"))
    };
    /// A method.
    MethodName(Method), |text| match Method::try_from(text) {
        Ok(method) if text.bytes().all(|byte| !byte.is_ascii_lowercase()) => Ok(method),
        _ => Err(format!("`{text}` is no method; methods are written in capitals, as in `POST`")),
    };
}

/// The last part of a problem's type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProblemName(pub String);

impl<'de> Deserialize<'de> for ProblemName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if Problem::NAMES.contains(&name.as_str()) {
            return Ok(Self(name));
        }
        Err(D::Error::custom(format!(
            "there is no problem `{name}`; there are {}",
            Problem::NAMES.join(", ")
        )))
    }
}

/// A status that a problem may be answered with.
#[derive(Clone, Copy, Debug)]
pub struct Status(pub StatusCode);

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u16::deserialize(deserializer)?;
        match StatusCode::from_u16(number) {
            Ok(status) if status.is_client_error() || status.is_server_error() => Ok(Self(status)),
            _ => Err(D::Error::custom(format!(
                "a problem is answered with a status of 400 to 599, not {number}"
            ))),
        }
    }
}

impl<'de> Deserialize<'de> for Preset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Route::preset(&name).map_err(D::Error::custom)?;
        Ok(Self(name))
    }
}

impl<'de> Deserialize<'de> for ScopeTerm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (kind, name) = text.split_once(':').unwrap_or((&text, ""));
        Ok(match (kind, name) {
            ("authorization", "") => Self::Authorization,
            ("mtls", "") => Self::Mtls,
            ("shared", "") => Self::Shared,
            ("header", name) if !name.is_empty() => Self::Header(
                HeaderName::try_from(name)
                    .map_err(|_| D::Error::custom(format!("`{name}` is no name of a header field")))?,
            ),
            ("jwt", claim) if !claim.is_empty() => Self::Jwt(claim.to_owned()),
            _ => {
                return Err(D::Error::custom(format!(
                    "`{text}` is no source of a scope; there are authorization, header:NAME, jwt:CLAIM, mtls and shared"
                )));
            }
        })
    }
}

fn lease<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Period>, D::Error> {
    let lease = Period::deserialize(deserializer)?;
    Policy::http().to_builder().with_lease(lease.0).build().map_err(D::Error::custom)?;
    Ok(Some(lease))
}

fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Period>, D::Error> {
    let wait = Period::deserialize(deserializer)?;
    Policy::http()
        .to_builder()
        .with_on_duplicate(OnDuplicate::Wait(wait.0))
        .build()
        .map_err(D::Error::custom)?;
    Ok(Some(wait))
}

impl Keep {
    /// Whether a policy takes it.
    pub fn check(self) -> Result<Retention, onceward::Error> {
        Policy::http().to_builder().with_retention(self.0).build().map(|_| self.0)
    }
}
