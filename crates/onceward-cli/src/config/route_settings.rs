//! The settings of a route as written in the file, each of them optional. Each value is checked while it is parsed,
//! so that an error names its line.

use std::collections::BTreeMap;
use std::fmt;

use http::{HeaderName, Method, StatusCode};
use onceward::{OnDuplicate, Policy, Retention};
use onceward_http::fingerprint::Pointer;
use onceward_http::problem::Problem;
use onceward_http::{Action, KeyFrom, Route};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::pattern::Pattern;
use super::values::{KeepFor, Period, Size, StatusOrClass};
use super::webhook_settings::{AcceptSetting, OrderSource, SchemeName, SecretSource};
use crate::proxy::{ForwardKey, UpstreamReuse};

macro_rules! route_settings {
    ($($(#[$meta:meta])* $name:ident: $kind:ty,)+) => {
        /// The settings in `[defaults]` or in one `[[route]]`.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct RouteSettings { $($(#[$meta])* pub $name: Option<$kind>,)+ }

        impl RouteSettings {
            /// These settings, with those of `base` where one is missing.
            pub fn over(&self, base: &Self) -> Self {
                Self { $($name: self.$name.clone().or_else(|| base.$name.clone()),)+ }
            }
        }
    };
}

route_settings! {
    path: Pattern,
    preset: Preset,
    methods: Vec<MethodName>,
    key: KeySetting,
    key_from: KeySource,
    key_form: KeyFormSetting,
    key_length_min: usize,
    key_pattern: String,
    precondition: PreconditionSetting,
    scope: ScopeSetting,
    anonymous: AnonymousSetting,
    operation: String,
    fingerprint: FingerprintSetting,
    request_bytes_max: Size,
    response_bytes_max: Size,
    #[serde(deserialize_with = "lease")]
    lease: Period,
    on_duplicate: DuplicateSetting,
    #[serde(deserialize_with = "wait")]
    wait_at_most: Period,
    record_wait: Period,
    outcomes: BTreeMap<StatusOrClass, ActionName>,
    keep: KeepSetting,
    on_unknown: UnknownSetting,
    reconcile_url: String,
    on_expired: ExpiredSetting,
    expired_kept: KeepFor,
    omit_fields: Vec<FieldName>,
    replay_cookies: bool,
    problem_status: BTreeMap<ProblemName, Status>,
    forward_key: ForwardKey,
    answer_timeout: Period,
    upstream_reuse: UpstreamReuse,
    fail_open: bool,
    shedding: SheddingSetting,
    allow_origins: Vec<String>,
    same_request_window: Period,
    on_same_request: SameRequestSetting,
    closes: Vec<String>,
    verify: SchemeName,
    secrets: Vec<SecretSource>,
    tolerance: Period,
    accept: AcceptSetting,
    accept_status: u16,
    order_by: OrderSource,
    tries: u16,
    sign_with: SecretSource,
}

/// The name of a preset.
#[derive(Clone, Debug)]
pub struct Preset(pub String);

/// Whether a request must have a key.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeySetting {
    Required,
    Optional,
    Ignored,
}

/// Whether a PUT, PATCH or DELETE must have a precondition.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreconditionSetting {
    Required,
    Optional,
}

/// How strictly the syntax of a key is checked.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyFormSetting {
    Strict,
    Lenient,
    Raw,
}

/// The treatment of the same request under another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SameRequestSetting {
    Count,
    Refuse,
}

/// When new work is refused because the service is slow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SheddingSetting {
    pub latency: Period,
    pub in_flight_min: Option<usize>,
}

/// The treatment of a request without a caller to derive its scope from.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnonymousSetting {
    Share,
    Refuse,
}

/// The treatment of a duplicate while the first request runs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DuplicateSetting {
    Wait,
    Conflict,
}

/// The treatment of an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownSetting {
    Hold,
    Retry,
    Reconcile,
}

/// The treatment of a key past its retention.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExpiredSetting {
    Run,
    Reject,
}

/// The effect of a response on its key.
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

/// Where the scope comes from: one source, or several that count together.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a source such as \"auto\", or a list such as [\"auto\", \"host\"]")]
pub enum ScopeSetting {
    One(ScopeText),
    Several(Vec<ScopeText>),
}

/// A source as written. It is parsed later: an untagged value hides the message of its parser.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct ScopeText(String);

impl ScopeSetting {
    pub fn sources(&self) -> Result<Vec<ScopeSource>, String> {
        let texts = match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        };
        if texts.is_empty() {
            return Err("scope: the list must not be empty; leave it out for \"auto\"".into());
        }
        let sources = texts.iter().map(|text| text.0.parse().map_err(|error| format!("scope: {error}")));
        sources.collect()
    }
}

/// One source of the scope: `auto`, `header:NAME`, `cookie:NAME`, `jwt:CLAIM`, `mtls`, `host` or `shared`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeSource {
    Auto,
    Header(HeaderName),
    Cookie(String),
    Jwt(String),
    Mtls,
    Host,
    Shared,
}

impl fmt::Display for ScopeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Jwt(claim) => write!(f, "jwt:{claim}"),
            Self::Mtls => f.write_str("mtls"),
            Self::Host => f.write_str("host"),
            Self::Shared => f.write_str("shared"),
        }
    }
}

/// How long responses are kept: one value for all, or one for each class.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a duration such as \"24h\", \"forever\", or a table such as { 2xx = \"24h\", 4xx = \"1h\" }"
)]
pub enum KeepSetting {
    All(KeepFor),
    ByClass(BTreeMap<StatusOrClass, KeepFor>),
}

/// Which parts of a request its fingerprint covers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FingerprintSetting {
    pub members_only: Option<Vec<MemberPointer>>,
    pub members_except: Option<Vec<MemberPointer>>,
    pub parameters_only: Option<Vec<String>>,
    pub parameters_except: Option<Vec<String>>,
    pub headers: Vec<FieldName>,
    pub ignore_headers: Vec<FieldName>,
    pub host: Option<bool>,
}

macro_rules! parsed_from_text {
    ($($(#[$meta:meta])* $name:ident($kind:ty), $parse:expr;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name(pub $kind);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let parse: fn(&str) -> Result<$kind, String> = $parse;
                parse(&text).map(Self).map_err(D::Error::custom)
            }
        }
    )+};
}

parsed_from_text! {
    /// A JSON pointer.
    MemberPointer(Pointer), |text| Pointer::parse(text).map_err(|error| error.to_string());
    /// Where the key comes from.
    KeySource(KeyFrom), |text| text.parse().map_err(|error: onceward::Error| error.to_string());
    /// The name of a header field.
    FieldName(HeaderName), |text| {
        HeaderName::try_from(text).map_err(|_| format!("`{text}` is not the name of a header field"))
    };
    /// An HTTP method.
    MethodName(Method), |text| match Method::try_from(text) {
        Ok(method) if text.bytes().all(|byte| !byte.is_ascii_lowercase()) => Ok(method),
        _ => Err(format!("`{text}` is not a method; write methods in capitals, as in `POST`")),
    };
}

/// The name of a problem: the last part of its type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProblemName(pub String);

impl<'de> Deserialize<'de> for ProblemName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if Problem::NAMES.contains(&name.as_str()) {
            return Ok(Self(name));
        }
        Err(D::Error::custom(format!(
            "there is no problem `{name}`; the problems are {}",
            Problem::NAMES.join(", ")
        )))
    }
}

/// The status of a problem: 400 to 599.
#[derive(Clone, Copy, Debug)]
pub struct Status(pub StatusCode);

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u16::deserialize(deserializer)?;
        match StatusCode::from_u16(number) {
            Ok(status) if status.is_client_error() || status.is_server_error() => Ok(Self(status)),
            _ => Err(D::Error::custom(format!("the status of a problem must be 400 to 599, not {number}"))),
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

impl std::str::FromStr for ScopeSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        Ok(match (kind, name) {
            ("auto", "") => Self::Auto,
            ("mtls", "") => Self::Mtls,
            ("host", "") => Self::Host,
            ("shared", "") => Self::Shared,
            ("header", name) if !name.is_empty() => Self::Header(
                HeaderName::try_from(name)
                    .map_err(|_| format!("`{name}` is not the name of a header field"))?,
            ),
            ("cookie", name) if !name.is_empty() => Self::Cookie(name.to_owned()),
            ("jwt", claim) if !claim.is_empty() => Self::Jwt(claim.to_owned()),
            _ => {
                return Err(format!(
                    "`{text}` is not a source of a scope; the sources are auto, header:NAME, cookie:NAME, jwt:CLAIM, \
                     mtls, host and shared"
                ));
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

impl KeepFor {
    /// The retention, if a policy accepts it.
    pub fn check(self) -> Result<Retention, onceward::Error> {
        Policy::http().to_builder().with_retention(self.0).build().map(|_| self.0)
    }
}
