//! `onceward config check`: reads a file as the gateway does, and prints the settings in effect for each route.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use http::Method;
use onceward::OnUnknown;
use onceward_http::fingerprint::Pick;
use onceward_http::key::KeyForm;
use onceward_http::webhook::Receiver;
use onceward_http::{
    KeyRule, OnAnonymous, OnSameRequest, OnStoreFailure, PreconditionRule, Route, StatusClass,
};

use super::effective_route::EffectiveRoute;
use super::settings::{Routes, Settings};
use super::values::{KeepFor, Period, Size};
use crate::proxy::{ForwardKey, UpstreamReuse};

const AFTER_HELP: &str = "\
Example:
  onceward config check onceward.toml

Exit code:
  0  the file is valid; the settings of each route are on standard output
  2  the file is not valid; the message names the line and the field";

/// Check a configuration file without starting anything.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Check a file, and print the settings in effect for each route.
    #[command(after_help = AFTER_HELP)]
    Check {
        /// The file, such as `onceward.toml`.
        file: PathBuf,
    },
}

impl Args {
    pub fn run(self) -> ExitCode {
        let Command::Check { file } = self.command;
        match Settings::read(&file) {
            Ok((_, routes)) => {
                print!("{}", table(&routes));
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("onceward: {error}");
                ExitCode::from(2)
            }
        }
    }
}

/// The settings of every route, one block each, in the order in which routes are matched.
pub fn table(routes: &Routes) -> String {
    let mut text = String::new();
    for (number, route) in routes.list.iter().enumerate() {
        let methods = route.methods.as_deref().map_or("any method".into(), names);
        block(&mut text, &format!("{}. {methods} {}", number + 1, route.pattern), route);
    }
    let rest = if routes.list.is_empty() { "Every request" } else { "Otherwise" };
    block(&mut text, rest, &routes.otherwise);
    text
}

fn block(text: &mut String, title: &str, effective: &EffectiveRoute) {
    if !text.is_empty() {
        text.push('\n');
    }
    let _ = writeln!(text, "{title}");
    for (name, value) in rows(effective) {
        let _ = writeln!(text, "   {name:<20} {value}");
    }
}

/// Every setting and its value, in the syntax of the file where it has one.
fn rows(effective: &EffectiveRoute) -> Vec<(&'static str, String)> {
    let (route, policy) = (&*effective.route, effective.route.policy());
    if route.key() == KeyRule::Ignored {
        return vec![
            ("key", "ignored: every request passes unguarded".into()),
            ("precondition", precondition(route).into()),
        ];
    }
    let mut rows = vec![
        ("preset", effective.preset.clone()),
        ("guarded methods", names(route.methods())),
        ("key", key(route)),
        ("key_from", route.key_from().to_string()),
        ("precondition", precondition(route).into()),
        ("scope", scope(effective)),
        ("operation", route.operation().to_string()),
        ("compared", compared(route)),
        ("request_bytes_max", Size(route.request_bytes_max()).to_string()),
        ("response_bytes_max", Size(route.response_bytes_max()).to_string()),
        ("lease", Period(policy.lease()).to_string()),
        (
            "on_duplicate",
            match policy.on_duplicate().wait_max() {
                Some(at_most) => format!("wait, at most {}", Period(at_most)),
                None => "conflict".into(),
            },
        ),
        ("record_wait", Period(route.record_wait()).to_string()),
        ("outcomes", outcomes(route)),
        ("on_unknown", unknown(effective)),
        (
            "on_expired",
            match policy.on_expired().tombstone() {
                None => "run: a late retry is a new intent".into(),
                Some(kept) => format!("reject, for {}", KeepFor(kept)),
            },
        ),
        ("never replayed", list(route.omitted_fields())),
        (
            "forward_key",
            match effective.forward_key {
                ForwardKey::Same => "same",
                ForwardKey::Derived => "derived",
                ForwardKey::Stripped => "stripped",
            }
            .into(),
        ),
        ("answer_timeout", Period(effective.answer_timeout).to_string()),
        (
            "upstream_reuse",
            match effective.upstream_reuse {
                UpstreamReuse::Safe => "safe: connections are kept, guarded and unguarded requests apart",
                UpstreamReuse::Never => "never: each request has a connection of its own",
            }
            .into(),
        ),
        (
            "fail_open",
            match route.on_store_failure() {
                OnStoreFailure::Refuse => "false: requests are refused while the store cannot be reached".into(),
                OnStoreFailure::PassUnguarded => {
                    "true: requests pass UNGUARDED while the store cannot be reached; a retry may then run twice".into()
                }
                other => other.name().into(),
            },
        ),
    ];
    if let Some(shedding) = route.shedding() {
        let (latency, least) = (Period(shedding.latency()), shedding.in_flight_min());
        rows.push(("shedding", format!("above {latency}, never below {least} in flight")));
    }
    if let Some(rule) = route.same_request() {
        let found = match rule.on_found() {
            OnSameRequest::Count => "counted",
            OnSameRequest::Refuse => "refused",
            other => other.name(),
        };
        let window = Period(rule.window());
        rows.push((
            "same_request_window",
            format!("{window}: the same request under another key is {found}"),
        ));
    }
    if let Some(origins) = route.allowed_origins() {
        rows.push(("allow_origins", list(origins.each())));
    }
    if let Some(receiver) = route.webhook() {
        rows.push(("verify", receiver.scheme().name().into()));
        rows.push(("accept", accept(route, receiver)));
    }
    if !route.closes().is_empty() {
        rows.push(("closes", list(route.closes())));
    }
    if !route.problem_statuses().is_empty() {
        let mapped =
            route.problem_statuses().iter().map(|(name, status)| format!("{name} = {}", status.as_u16()));
        rows.push(("problem_status", mapped.collect::<Vec<_>>().join(", ")));
    }
    rows
}

fn key(route: &Route) -> String {
    let rule = route.key().name();
    let shape = route.key_shape();
    let form = match shape.form() {
        KeyForm::Strict => "strict: in quotes",
        KeyForm::Lenient => "lenient: with or without quotes",
        KeyForm::Raw => "raw: as it is",
        other => other.name(),
    };
    let mut text = format!("{rule}, {form}, at least {} characters", shape.length_min());
    if let Some(pattern) = shape.pattern() {
        let _ = write!(text, ", matching {pattern}");
    }
    text
}

fn accept(route: &Route, receiver: &Receiver) -> String {
    let Some(stored) = receiver.store_first() else {
        return "forward: its sender waits for the service".into();
    };
    let order = stored.order_by().map_or("in any order".into(), |by| format!("in order by {by}"));
    let (status, tries) = (stored.status().as_u16(), route.policy().tries_max());
    format!("store-first: answered {status} at once, delivered {order}, at most {tries} times")
}

fn precondition(route: &Route) -> &'static str {
    match route.precondition() {
        PreconditionRule::Optional => "optional: left to the service",
        PreconditionRule::Required => "required on PUT, PATCH and DELETE",
        other => other.name(),
    }
}

fn scope(effective: &EffectiveRoute) -> String {
    let sources = list(&effective.scope);
    match effective.route.on_anonymous() {
        OnAnonymous::Share => format!("{sources}; requests without it share one scope"),
        OnAnonymous::Refuse => format!("{sources}; requests without it are refused"),
    }
}

fn compared(route: &Route) -> String {
    fn picked<T: ToString>(what: &str, pick: &Pick<T>) -> String {
        let list = |list: &[T]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        match pick {
            Pick::All => what.to_owned(),
            Pick::Only(only) => format!("{what} (only {})", list(only)),
            Pick::Except(except) => format!("{what} (except {})", list(except)),
            _ => format!("{what} (in part)"),
        }
    }
    let rules = route.fingerprint();
    let mut text = format!(
        "method, {}path, {}, {}",
        if rules.host() { "host, " } else { "" },
        picked("query", rules.parameters()),
        picked("body", rules.members())
    );
    for header in rules.headers() {
        let _ = write!(text, ", {header}");
    }
    text
}

/// `2xx replay 24h, 429 retry, 5xx replay 24h, 503 unknown`.
fn outcomes(route: &Route) -> String {
    let mut parts = Vec::new();
    for class in StatusClass::ALL {
        let action = route.class_action(class);
        let kept = match action {
            onceward_http::Action::Replay => format!(" {}", KeepFor(route.retention(class))),
            _ => String::new(),
        };
        parts.push(format!("{}xx {}{kept}", class.digit(), action.name()));
        for (status, action) in route.status_actions() {
            if StatusClass::of(status) == class && action != route.class_action(class) {
                parts.push(format!("{} {}", status.as_u16(), action.name()));
            }
        }
    }
    if route.answer_lost_action() != route.class_action(StatusClass::ServerError) {
        parts.push(format!("520-599 {}", route.answer_lost_action().name()));
    }
    if route.frees_conflict_with_retry_after() {
        parts.push("409 with Retry-After retry".into());
    }
    parts.join(", ")
}

fn unknown(effective: &EffectiveRoute) -> String {
    match (&effective.reconcile_url, effective.route.policy().on_unknown()) {
        (Some(url), _) => format!("reconcile: GET {url}"),
        (None, OnUnknown::Hold) => "hold: not run again until it is settled".into(),
        (None, OnUnknown::Retry) => "retry: the upstream may receive it again, with a higher fence".into(),
        (None, other) => other.name().into(),
    }
}

fn names(methods: &[Method]) -> String {
    list(methods)
}

fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
