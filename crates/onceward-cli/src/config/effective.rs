//! What holds for one route once defaults and presets are in: a route of the layer, and what only the
//! gateway knows.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use onceward::{OnDuplicate, OnExpired, OnUnknown, Policy, Retention};
use onceward_http::fingerprint::{Pick, Rules};
use onceward_http::key::KeyForm;
use onceward_http::{
    KeyRule, OnAnonymous, OnStoreFailure, Operation, Route, RouteBuilder, ScopeFrom, StatusClass,
};

use super::pattern::Pattern;
use super::terms::{Anonymous, Compared, Duplicate, Expired, Form, KeepTerm, Key, ScopeTerm, Terms, Unknown};
use super::values::Answers;
use crate::proxy::ForwardKey;

/// How long the upstream may take to answer, unless a route says otherwise.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a duplicate waits, unless a route says otherwise.
const WAIT_AT_MOST: Duration = Duration::from_secs(30);
/// How long a refused late key is remembered, unless a route says otherwise.
const EXPIRED_KEPT: Retention = Retention::For(Duration::from_hours(24 * 30));

/// Everything that holds for one route.
#[derive(Clone, Debug)]
pub struct Effective {
    pub pattern: Pattern,
    /// The methods it is for, if it names some; otherwise it is for all, and guards those of its preset.
    pub methods: Option<Vec<Method>>,
    pub preset: String,
    pub scope: ScopeTerm,
    pub route: Arc<Route>,
    pub forward_key: ForwardKey,
    pub answer_timeout: Duration,
    /// Asked what became of an unknown outcome.
    pub reconcile_url: Option<String>,
}

pub use super::terms::ScopeTerm as ScopeSource;

impl Effective {
    pub fn new(terms: &Terms) -> Result<Self, String> {
        let preset = terms.preset.as_ref().map_or("ietf", |preset| preset.0.as_str());
        let preset_route = Route::preset(preset).map_err(text)?;
        let mut route = preset_route.to_builder();
        // Drop-in: requests without a key pass, unless the file says otherwise.
        route = route.with_key(match terms.key.unwrap_or(Key::Optional) {
            Key::Required => KeyRule::Required,
            Key::Optional => KeyRule::Optional,
            Key::Ignored => KeyRule::Ignored,
        });
        if let Some(form) = terms.key_form {
            route = route.with_key_form(match form {
                Form::Strict => KeyForm::Strict,
                Form::Lenient => KeyForm::Lenient,
                Form::Raw => KeyForm::Raw,
            });
        }
        if let Some(characters) = terms.key_length_min {
            route = checked("key_length_min", route.with_key_length_min(characters))?;
        }
        if let Some(pattern) = &terms.key_pattern {
            route = checked("key_pattern", route.with_key_pattern(pattern))?;
        }
        let methods: Option<Vec<Method>> =
            terms.methods.as_ref().map(|methods| methods.iter().map(|method| method.0.clone()).collect());
        if let Some(methods) = &methods {
            if methods.is_empty() {
                return Err("methods: at least one is needed; `key = \"ignored\"` guards none".into());
            }
            route = route.with_methods(methods.iter().cloned());
        }
        let scope = terms.scope.clone().unwrap_or(ScopeTerm::Authorization);
        route = route.with_scope(match &scope {
            ScopeTerm::Authorization => ScopeFrom::Authorization,
            ScopeTerm::Header(name) => ScopeFrom::Header(name.clone()),
            ScopeTerm::Jwt(_) | ScopeTerm::Mtls => ScopeFrom::Extension,
            ScopeTerm::Shared => ScopeFrom::Shared,
        });
        if let Some(rule) = terms.anonymous {
            route = route.with_on_anonymous(match rule {
                Anonymous::Share => OnAnonymous::Share,
                Anonymous::Refuse => OnAnonymous::Refuse,
            });
        }
        let pattern = terms.path.clone().unwrap_or_else(Pattern::all);
        if let Some(operation) = &terms.operation {
            route = route.with_operation(match operation.as_str() {
                "path" => Operation::Path,
                "route" => {
                    Operation::named(pattern.as_str()).map_err(|error| format!("operation: {error}"))?
                }
                name => Operation::named(name).map_err(|error| format!("operation: {error}"))?,
            });
        }
        if let Some(compared) = &terms.fingerprint {
            route = route.with_fingerprint(rules(compared)?);
        }
        if let Some(size) = terms.request_bytes_max {
            route = route.with_request_bytes_max(size.0);
        }
        if let Some(size) = terms.response_bytes_max {
            route = route.with_response_bytes_max(size.0);
        }
        route = outcomes(route, terms)?;
        let answer_timeout = terms.answer_timeout.map_or(ANSWER_TIMEOUT, |period| period.0);
        if answer_timeout.is_zero() {
            return Err("answer_timeout: the upstream needs some time to answer".into());
        }
        // What a dead gateway has sent may run in the service for as long as anybody would have waited for it.
        let policy = policy(Policy::clone(preset_route.policy()), terms)?;
        let policy = policy
            .to_builder()
            .with_late_effect_max(answer_timeout)
            .build()
            .map_err(|error| format!("answer_timeout: {error}"))?;
        route = route.with_policy(policy);
        route = keep(route, terms)?;
        for field in terms.omit_fields.iter().flatten() {
            route = route.with_omitted_field(field.0.clone());
        }
        if terms.replay_cookies == Some(true) {
            route = route.with_cookies_replayed();
        }
        for (name, status) in terms.problem_status.iter().flatten() {
            route = checked("problem_status", route.with_problem_status(&name.0, status.0))?;
        }
        if terms.fail_open == Some(true) {
            route = route.with_on_store_failure(OnStoreFailure::PassUnguarded);
        }
        let reconcile_url = reconcile_url(terms)?;
        Ok(Self {
            pattern,
            methods,
            preset: preset.to_owned(),
            scope,
            route: Arc::new(route.build().map_err(text)?),
            forward_key: terms.forward_key.unwrap_or_default(),
            answer_timeout,
            reconcile_url,
        })
    }

    /// Whether a request is this route's.
    pub fn is_for(&self, method: &Method, path: &str) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(method)) && self.pattern.matches(path)
    }
}

fn rules(compared: &Compared) -> Result<Rules, String> {
    fn pick<W: Clone, T>(
        what: &str,
        only: Option<&Vec<W>>,
        except: Option<&Vec<W>>,
        read: impl Fn(W) -> T,
    ) -> Result<Pick<T>, String> {
        let all = |list: &Vec<W>| list.iter().cloned().map(&read).collect();
        match (only, except) {
            (None, None) => Ok(Pick::All),
            (Some(only), None) => Ok(Pick::Only(all(only))),
            (None, Some(except)) => Ok(Pick::Except(all(except))),
            (Some(_), Some(_)) => {
                Err(format!("fingerprint: {what}_only and {what}_except exclude each other"))
            }
        }
    }
    let members =
        pick("members", compared.members_only.as_ref(), compared.members_except.as_ref(), |pointer| {
            pointer.0
        })?;
    let parameters =
        pick("parameters", compared.parameters_only.as_ref(), compared.parameters_except.as_ref(), |name| {
            name
        })?;
    Ok(Rules::default()
        .with_members(members)
        .with_parameters(parameters)
        .with_headers(compared.headers.iter().map(|field| field.0.clone())))
}

fn outcomes(mut route: RouteBuilder, terms: &Terms) -> Result<RouteBuilder, String> {
    // Classes first, so that a status set by itself stands out from its class, whatever the order.
    for (answers, action) in terms.outcomes.iter().flatten() {
        route = match (answers, answers.status()) {
            (Answers::Class(digit), _) => route.with_on_class(class(*digit)?, (*action).into()),
            (_, Some(status)) => route.with_on_status(status, (*action).into()),
            (Answers::Status(_), None) => return Err(format!("outcomes: there is no status {answers}")),
        };
    }
    Ok(route)
}

/// A route so far, or the field that it does not take.
fn checked(field: &str, route: RouteBuilder) -> Result<RouteBuilder, String> {
    route.build().map(RouteBuilder::from).map_err(|error| format!("{field}: {error}"))
}

fn keep(mut route: RouteBuilder, terms: &Terms) -> Result<RouteBuilder, String> {
    let Some(KeepTerm::ByClass(table)) = &terms.keep else { return Ok(route) };
    for (answers, keep) in table {
        let Answers::Class(digit) = answers else {
            return Err(format!("keep: write a class such as `2xx`, not {answers}"));
        };
        let retention = keep.check().map_err(|error| format!("keep: {error}"))?;
        route = checked("keep", route.with_retention(class(*digit)?, retention))?;
    }
    Ok(route)
}

fn class(digit: u8) -> Result<StatusClass, String> {
    StatusClass::from_digit(digit).ok_or_else(|| format!("there is no class {digit}xx"))
}

fn policy(mut policy: Policy, terms: &Terms) -> Result<Policy, String> {
    if let Some(lease) = terms.lease {
        policy =
            policy.to_builder().with_lease(lease.0).build().map_err(|error| format!("lease: {error}"))?;
    }
    let waits = match policy.on_duplicate() {
        OnDuplicate::Wait(at_most) => Some(at_most),
        OnDuplicate::Conflict => None,
    };
    let wait_at_most = terms.wait_at_most.map(|period| period.0);
    let duplicate = match (terms.on_duplicate, wait_at_most, waits) {
        (Some(Duplicate::Conflict), ..) | (None, None, None) => OnDuplicate::Conflict,
        (_, at_most, usual) => OnDuplicate::Wait(at_most.or(usual).unwrap_or(WAIT_AT_MOST)),
    };
    policy = policy
        .to_builder()
        .with_on_duplicate(duplicate)
        .build()
        .map_err(|error| format!("wait_at_most: {error}"))?;
    if let Some(KeepTerm::All(keep)) = &terms.keep {
        policy =
            policy.to_builder().with_retention(keep.0).build().map_err(|error| format!("keep: {error}"))?;
    }
    policy = match terms.on_unknown {
        None => policy,
        Some(Unknown::Retry) => {
            policy.to_builder().with_on_unknown(OnUnknown::Retry).build().map_err(text)?
        }
        // What is reconciled must be held until the service has been asked.
        Some(Unknown::Hold | Unknown::Reconcile) => {
            policy.to_builder().with_on_unknown(OnUnknown::Hold).build().map_err(text)?
        }
    };
    let kept = terms.expired_kept.map_or(EXPIRED_KEPT, |keep| keep.0);
    match terms.on_expired {
        None if terms.expired_kept.is_some() => {
            Err("expired_kept: nothing is kept unless on_expired is \"reject\"".into())
        }
        None => Ok(policy),
        Some(Expired::Run) => policy.to_builder().with_on_expired(OnExpired::Run).build().map_err(text),
        Some(Expired::Reject) => policy
            .to_builder()
            .with_on_expired(OnExpired::Refuse(kept))
            .build()
            .map_err(|error| format!("expired_kept: {error}")),
    }
}

fn reconcile_url(terms: &Terms) -> Result<Option<String>, String> {
    match (terms.on_unknown, &terms.reconcile_url) {
        (Some(Unknown::Reconcile), None) => {
            Err("on_unknown: \"reconcile\" needs a reconcile_url, as in \"/charges/by-key/{key}\"".into())
        }
        (Some(Unknown::Reconcile), Some(url)) if !url.starts_with('/') => {
            Err("reconcile_url: it is a path of the upstream, and begins with a slash".into())
        }
        (Some(Unknown::Reconcile), Some(url)) if !url.contains("{key}") => {
            Err("reconcile_url: without {key} in it the service cannot tell which request is meant".into())
        }
        (Some(Unknown::Reconcile), Some(url)) => Ok(Some(url.clone())),
        // Left over from the defaults.
        (_, None) | (Some(Unknown::Hold | Unknown::Retry), _) => Ok(None),
        (None, Some(_)) => Err("reconcile_url: it is asked only where on_unknown is \"reconcile\"".into()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn text(error: onceward::Error) -> String {
    error.to_string()
}
