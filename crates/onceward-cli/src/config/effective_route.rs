//! The settings in effect for one route, after defaults and preset: the route of the layer, and the settings that
//! only the gateway uses.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use onceward::{OnDuplicate, OnExpired, OnUnknown, Policy, Retention};
use onceward_http::fingerprint::{Pick, Rules};
use onceward_http::key::KeyForm;
use onceward_http::webhook::Signer;
use onceward_http::{
    AllowedOrigins, KeyRule, OnAnonymous, OnSameRequest, OnStoreFailure, Operation, PreconditionRule, Route,
    RouteBuilder, SameRequest, ScopeFrom, Shedding, StatusClass,
};

use super::pattern::Pattern;
use super::route_settings::{
    AnonymousSetting, DuplicateSetting, ExpiredSetting, FingerprintSetting, KeepSetting, KeyFormSetting,
    KeySetting, PreconditionSetting, RouteSettings, SameRequestSetting, ScopeSetting, ScopeSource,
    UnknownSetting,
};
use super::values::StatusOrClass;
use super::webhook_settings;
use crate::proxy::{ForwardKey, UpstreamReuse};

/// How long the upstream may take to answer, unless a route says otherwise.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a duplicate waits, unless a route says otherwise.
const WAIT_AT_MOST: Duration = Duration::from_secs(30);
/// How long a refused late key is remembered, unless a route says otherwise.
const EXPIRED_KEPT: Retention = Retention::For(Duration::from_hours(24 * 30));

/// The settings in effect for one route.
#[derive(Clone, Debug)]
pub struct EffectiveRoute {
    pub pattern: Pattern,
    /// The methods that it matches. `None` matches every method, and guards those of the preset.
    pub methods: Option<Vec<Method>>,
    pub preset: String,
    pub scope: Vec<ScopeSource>,
    pub route: Arc<Route>,
    pub forward_key: ForwardKey,
    /// What signs the deliveries of stored events.
    pub signer: Option<Signer>,
    pub answer_timeout: Duration,
    pub upstream_reuse: UpstreamReuse,
    /// The path that is requested to resolve an unknown outcome.
    pub reconcile_url: Option<String>,
}

impl EffectiveRoute {
    pub fn new(settings: &RouteSettings) -> Result<Self, String> {
        let preset = settings.preset.as_ref().map_or("ietf", |preset| preset.0.as_str());
        let preset_route = Route::preset(preset).map_err(text)?;
        let mut route = preset_route.to_builder();
        // The gateway can be put in front of any service: requests without a key pass unless the file requires one.
        route = route.with_key(match settings.key.unwrap_or(KeySetting::Optional) {
            KeySetting::Required => KeyRule::Required,
            KeySetting::Optional => KeyRule::Optional,
            KeySetting::Ignored => KeyRule::Ignored,
        });
        if let Some(source) = &settings.key_from {
            route = route.with_key_from(source.0.clone());
        }
        if let Some(form) = settings.key_form {
            route = route.with_key_form(match form {
                KeyFormSetting::Strict => KeyForm::Strict,
                KeyFormSetting::Lenient => KeyForm::Lenient,
                KeyFormSetting::Raw => KeyForm::Raw,
            });
        }
        if let Some(characters) = settings.key_length_min {
            route = checked("key_length_min", route.with_key_length_min(characters))?;
        }
        if let Some(pattern) = &settings.key_pattern {
            route = checked("key_pattern", route.with_key_pattern(pattern))?;
        }
        let methods: Option<Vec<Method>> =
            settings.methods.as_ref().map(|methods| methods.iter().map(|method| method.0.clone()).collect());
        if let Some(methods) = &methods {
            if methods.is_empty() {
                return Err(
                    "methods: the list must not be empty; write `key = \"ignored\"` to guard no method"
                        .into(),
                );
            }
            route = route.with_methods(methods.iter().cloned());
        }
        route = precondition(route, settings, methods.as_deref())?;
        let usual = webhook_settings::usual_scope(settings);
        let scope = settings.scope.as_ref().map_or(Ok(vec![usual]), ScopeSetting::sources)?;
        route = route.with_scopes(scope.iter().map(scope_of_layer));
        if let Some(rule) = settings.anonymous {
            route = route.with_on_anonymous(match rule {
                AnonymousSetting::Share => OnAnonymous::Share,
                AnonymousSetting::Refuse => OnAnonymous::Refuse,
            });
        }
        let pattern = settings.path.clone().unwrap_or_else(Pattern::all);
        if let Some(operation) = &settings.operation {
            route = route.with_operation(match operation.as_str() {
                "path" => Operation::Path,
                "route" => {
                    Operation::named(pattern.as_str()).map_err(|error| format!("operation: {error}"))?
                }
                name => Operation::named(name).map_err(|error| format!("operation: {error}"))?,
            });
        }
        if let Some(compared) = &settings.fingerprint {
            route = route.with_fingerprint(rules(compared)?);
        }
        route = sizes(route, settings);
        if let Some(wait) = settings.record_wait {
            route = checked("record_wait", route.with_record_wait(wait.0))?;
        }
        route = outcomes(route, settings)?;
        let answer_timeout = settings.answer_timeout.map_or(ANSWER_TIMEOUT, |period| period.0);
        if answer_timeout.is_zero() {
            return Err("answer_timeout: it must be longer than zero".into());
        }
        // A request that a crashed gateway sent may still run in the service until its answer would have timed out.
        let policy = policy(Policy::clone(preset_route.policy()), settings)?;
        let policy = policy
            .to_builder()
            .with_late_effect_max(answer_timeout)
            .build()
            .map_err(|error| format!("answer_timeout: {error}"))?;
        route = route.with_policy(policy);
        route = keep(route, settings)?;
        route = replayed_fields(route, settings);
        for (name, status) in settings.problem_status.iter().flatten() {
            route = checked("problem_status", route.with_problem_status(&name.0, status.0))?;
        }
        if settings.fail_open == Some(true) {
            route = route.with_on_store_failure(OnStoreFailure::PassUnguarded);
        }
        route = closes(browsers_and_load(route, settings)?, settings)?;
        let reconcile_url = reconcile_url(settings)?;
        let (webhook_route, signer) = webhook_settings::apply(route, preset, settings)?;
        route = webhook_route;
        Ok(Self {
            pattern,
            methods,
            preset: preset.to_owned(),
            scope,
            route: Arc::new(route.build().map_err(text)?),
            forward_key: webhook_settings::forward_key(settings),
            signer,
            answer_timeout,
            upstream_reuse: settings.upstream_reuse.unwrap_or_default(),
            reconcile_url,
        })
    }

    /// Returns whether a request matches this route.
    pub fn is_for(&self, method: &Method, path: &str) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(method)) && self.pattern.matches(path)
    }
}

fn precondition(
    route: RouteBuilder,
    settings: &RouteSettings,
    methods: Option<&[Method]>,
) -> Result<RouteBuilder, String> {
    let rule = match settings.precondition {
        None | Some(PreconditionSetting::Optional) => PreconditionRule::Optional,
        Some(PreconditionSetting::Required) => PreconditionRule::Required,
    };
    let none = |methods: &[Method]| !methods.iter().any(|method| PreconditionRule::METHODS.contains(method));
    // A setting without effect would look like protection.
    if rule == PreconditionRule::Required && settings.path.is_some() && methods.is_some_and(none) {
        return Err(
            "precondition: it is for PUT, PATCH and DELETE, and the methods of this route have none of \
                    them"
                .into(),
        );
    }
    Ok(route.with_precondition(rule))
}

/// What an undo may close.
fn closes(route: RouteBuilder, settings: &RouteSettings) -> Result<RouteBuilder, String> {
    match &settings.closes {
        Some(operations) => checked("closes", route.with_closes(operations.iter().cloned())),
        None => Ok(route),
    }
}

fn browsers_and_load(mut route: RouteBuilder, settings: &RouteSettings) -> Result<RouteBuilder, String> {
    if let Some(origins) = &settings.allow_origins {
        let origins = AllowedOrigins::new(origins).map_err(|error| format!("allow_origins: {error}"))?;
        route = route.with_allowed_origins(origins);
    }
    if let Some(setting) = &settings.shedding {
        let mut shedding = Shedding::new(setting.latency.0);
        if let Some(intents) = setting.in_flight_min {
            shedding = shedding.with_in_flight_min(intents);
        }
        route = checked("shedding", route.with_shedding(shedding))?;
    }
    match (settings.same_request_window, settings.on_same_request) {
        (None, Some(_)) => {
            return Err(
                "on_same_request: it has no effect without a same_request_window, as in \"30s\"".into()
            );
        }
        (None, None) => {}
        (Some(window), on_found) => {
            let on_found = match on_found {
                None | Some(SameRequestSetting::Count) => OnSameRequest::Count,
                Some(SameRequestSetting::Refuse) => OnSameRequest::Refuse,
            };
            let rule = SameRequest::within(window.0).with_on_found(on_found);
            route = checked("same_request_window", route.with_same_request(rule))?;
        }
    }
    Ok(route)
}

fn sizes(mut route: RouteBuilder, settings: &RouteSettings) -> RouteBuilder {
    if let Some(size) = settings.request_bytes_max {
        route = route.with_request_bytes_max(size.0);
    }
    if let Some(size) = settings.response_bytes_max {
        route = route.with_response_bytes_max(size.0);
    }
    route
}

fn replayed_fields(mut route: RouteBuilder, settings: &RouteSettings) -> RouteBuilder {
    for field in settings.omit_fields.iter().flatten() {
        route = route.with_omitted_field(field.0.clone());
    }
    if settings.replay_cookies == Some(true) {
        route = route.with_cookies_replayed();
    }
    route
}

/// The source as the layer knows it. It is the gateway that verifies tokens and certificates.
pub fn scope_of_layer(source: &ScopeSource) -> ScopeFrom {
    match source {
        ScopeSource::Auto => ScopeFrom::Auto,
        ScopeSource::Header(name) => ScopeFrom::Header(name.clone()),
        ScopeSource::Cookie(name) => ScopeFrom::Cookie(name.clone()),
        ScopeSource::Jwt(_) | ScopeSource::Mtls => ScopeFrom::Extension,
        ScopeSource::Host => ScopeFrom::Host,
        ScopeSource::Shared => ScopeFrom::Shared,
    }
}

fn rules(compared: &FingerprintSetting) -> Result<Rules, String> {
    fn pick<W: Clone, T>(
        what: &str,
        only: Option<&Vec<W>>,
        except: Option<&Vec<W>>,
        convert: impl Fn(W) -> T,
    ) -> Result<Pick<T>, String> {
        let all = |list: &Vec<W>| list.iter().cloned().map(&convert).collect();
        match (only, except) {
            (None, None) => Ok(Pick::All),
            (Some(only), None) => Ok(Pick::Only(all(only))),
            (None, Some(except)) => Ok(Pick::Except(all(except))),
            (Some(_), Some(_)) => {
                Err(format!("fingerprint: {what}_only and {what}_except cannot both be set"))
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
        .with_headers(compared.headers.iter().map(|field| field.0.clone()))
        .with_ignored_headers(compared.ignore_headers.iter().map(|field| field.0.clone()))
        .with_host(compared.host.unwrap_or(true)))
}

fn outcomes(mut route: RouteBuilder, settings: &RouteSettings) -> Result<RouteBuilder, String> {
    // A map sorts classes before statuses, so a single status overrides its class in any order of writing.
    for (answers, action) in settings.outcomes.iter().flatten() {
        route = match (answers, answers.status()) {
            (StatusOrClass::Class(digit), _) => route.with_on_class(class(*digit)?, (*action).into()),
            (_, Some(status)) => route.with_on_status(status, (*action).into()),
            (StatusOrClass::Status(_), None) => {
                return Err(format!("outcomes: there is no status {answers}"));
            }
        };
    }
    Ok(route)
}

/// The route so far, or an error that names the setting that it does not accept.
fn checked(field: &str, route: RouteBuilder) -> Result<RouteBuilder, String> {
    route.build().map(RouteBuilder::from).map_err(|error| format!("{field}: {error}"))
}

fn keep(mut route: RouteBuilder, settings: &RouteSettings) -> Result<RouteBuilder, String> {
    let Some(KeepSetting::ByClass(table)) = &settings.keep else { return Ok(route) };
    for (answers, keep) in table {
        let retention = keep.check().map_err(|error| format!("keep: {error}"))?;
        route = match (answers, answers.status()) {
            (StatusOrClass::Class(digit), _) => route.with_retention(class(*digit)?, retention),
            (_, Some(status)) => route.with_status_retention(status, retention),
            (StatusOrClass::Status(_), None) => return Err(format!("keep: there is no status {answers}")),
        };
        route = checked("keep", route)?;
    }
    Ok(route)
}

fn class(digit: u8) -> Result<StatusClass, String> {
    StatusClass::from_digit(digit).ok_or_else(|| format!("there is no class {digit}xx"))
}

fn policy(mut policy: Policy, settings: &RouteSettings) -> Result<Policy, String> {
    if let Some(lease) = settings.lease {
        policy =
            policy.to_builder().with_lease(lease.0).build().map_err(|error| format!("lease: {error}"))?;
    }
    let preset_wait = policy.on_duplicate().wait_max();
    let wait_at_most = settings.wait_at_most.map(|period| period.0);
    let duplicate = match (settings.on_duplicate, wait_at_most, preset_wait) {
        (Some(DuplicateSetting::Conflict), ..) | (None, None, None) => OnDuplicate::Conflict,
        (_, at_most, preset_wait) => OnDuplicate::Wait(at_most.or(preset_wait).unwrap_or(WAIT_AT_MOST)),
    };
    policy = policy
        .to_builder()
        .with_on_duplicate(duplicate)
        .build()
        .map_err(|error| format!("wait_at_most: {error}"))?;
    if let Some(KeepSetting::All(keep)) = &settings.keep {
        policy =
            policy.to_builder().with_retention(keep.0).build().map_err(|error| format!("keep: {error}"))?;
    }
    policy = match settings.on_unknown {
        None => policy,
        Some(UnknownSetting::Retry) => {
            policy.to_builder().with_on_unknown(OnUnknown::Retry).build().map_err(text)?
        }
        // The receipt must be held until the service has been asked.
        Some(UnknownSetting::Hold | UnknownSetting::Reconcile) => {
            policy.to_builder().with_on_unknown(OnUnknown::Hold).build().map_err(text)?
        }
    };
    if let Some(tries) = settings.tries {
        policy =
            policy.to_builder().with_tries_max(tries).build().map_err(|error| format!("tries: {error}"))?;
    }
    let kept = settings.expired_kept.map_or(EXPIRED_KEPT, |keep| keep.0);
    match settings.on_expired {
        None if settings.expired_kept.is_some() => {
            Err("expired_kept: it has no effect unless on_expired is \"reject\"".into())
        }
        None => Ok(policy),
        Some(ExpiredSetting::Run) => {
            policy.to_builder().with_on_expired(OnExpired::Run).build().map_err(text)
        }
        Some(ExpiredSetting::Reject) => policy
            .to_builder()
            .with_on_expired(OnExpired::Refuse(kept))
            .build()
            .map_err(|error| format!("expired_kept: {error}")),
    }
}

fn reconcile_url(settings: &RouteSettings) -> Result<Option<String>, String> {
    match (settings.on_unknown, &settings.reconcile_url) {
        (Some(UnknownSetting::Reconcile), None) => {
            Err("on_unknown: \"reconcile\" needs a reconcile_url, as in \"/charges/by-key/{key}\"".into())
        }
        (Some(UnknownSetting::Reconcile), Some(url)) if !url.starts_with('/') => {
            Err("reconcile_url: write a path of the upstream that begins with a slash".into())
        }
        (Some(UnknownSetting::Reconcile), Some(url)) if !url.contains("{key}") => {
            Err("reconcile_url: it must contain {key}, which tells the service which request is meant".into())
        }
        (Some(UnknownSetting::Reconcile), Some(url)) => Ok(Some(url.clone())),
        // Inherited from the defaults, and not used by this route.
        (_, None) | (Some(UnknownSetting::Hold | UnknownSetting::Retry), _) => Ok(None),
        (None, Some(_)) => Err("reconcile_url: it has no effect unless on_unknown is \"reconcile\"".into()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn text(error: onceward::Error) -> String {
    error.to_string()
}
