//! Publishes the policy of each route for clients, as JSON or as an `OpenAPI` fragment. It is generated from the routes
//! themselves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use onceward::Retention;
use serde_json::{Map, Value, json};

use crate::action::{Action, LOST_RANGE, StatusClass};
use crate::fingerprint::{FIELDS_THAT_NAME_NO_CALLER, Pick};
use crate::headers::{IDEMPOTENCY_EXPIRES, IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, ONCEWARD_UNGUARDED};
use crate::key::KeyForm;
use crate::precondition::PreconditionRule;
use crate::problem::Problem;
use crate::route::{KeyRule, Route};
use crate::scope::OnAnonymous;

/// Where the policy is published by custom: problems link to it.
pub const PATH: &str = "/.well-known/idempotency";

/// The policy of all routes, each under the path or pattern that it is for, in the order in which they are
/// tried.
pub fn json(routes: &[(String, Arc<Route>)]) -> Value {
    json!({
        "specification": "draft-ietf-httpapi-idempotency-key-header-07",
        "field": IDEMPOTENCY_KEY.as_str(),
        "answer_fields": {
            "expires": IDEMPOTENCY_EXPIRES.as_str(),
            "replayed": IDEMPOTENT_REPLAYED.as_str(),
            "unguarded": ONCEWARD_UNGUARDED.as_str(),
        },
        "routes": routes.iter().map(|(path, route)| of_route(path, route)).collect::<Vec<_>>(),
    })
}

/// The same as an `OpenAPI` 3.1 fragment: the header parameter, the answers of Onceward, and the policy as the
/// extension `x-idempotency`, for each method of each path that is guarded.
pub fn openapi(routes: &[(String, Arc<Route>)]) -> Value {
    let mut paths = Map::new();
    for (path, route) in routes.iter().filter(|(_, route)| route.key() != KeyRule::Ignored) {
        let item = paths.entry(path).or_insert_with(|| json!({}));
        for method in route.methods() {
            // The first route that is tried is the one that counts.
            let operation = &mut item[method.as_str().to_ascii_lowercase()];
            if operation.is_null() {
                *operation = json!({
                    "parameters": parameter(route).into_iter().collect::<Vec<_>>(),
                    "responses": responses(route),
                    "x-idempotency": of_route(path, route),
                });
            }
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Idempotency policy", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "schemas": { "Problem": problem_schema() } },
    })
}

/// The policy of all routes, ready to be sent at [`PATH`].
#[derive(Clone, Debug)]
pub struct Document {
    json: Bytes,
    openapi: Bytes,
}

impl Document {
    /// Of these routes, each under the path or pattern that it is for, in the order in which they are tried.
    pub fn new(routes: &[(String, Arc<Route>)]) -> Self {
        let text = |value: Value| Bytes::from(format!("{value:#}\n"));
        Self { json: text(json(routes)), openapi: text(openapi(routes)) }
    }

    /// The answer to a request for [`PATH`]: JSON, or the `OpenAPI` fragment if the query is `format=openapi`.
    pub fn respond(&self, method: &Method, query: Option<&str>) -> Response<Bytes> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut refusal = Response::new(Bytes::from_static(b"only GET\n"));
            *refusal.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            let headers = refusal.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        let openapi = query.is_some_and(|query| query.split('&').any(|pair| pair == "format=openapi"));
        let text = if openapi { &self.openapi } else { &self.json };
        let mut response = Response::new(text.clone());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=60"));
        response
    }
}

fn of_route(path: &str, route: &Route) -> Value {
    let methods: Vec<_> = route.methods().iter().map(http::Method::as_str).collect();
    if route.key() == KeyRule::Ignored {
        return json!({
            "path": path,
            "methods": methods,
            "key": { "rule": "ignored" },
            "precondition": precondition(route),
        });
    }
    json!({
        "path": path,
        "methods": methods,
        "key": key(route),
        "precondition": precondition(route),
        "scope": scope(route),
        "operation": route.operation().to_string(),
        "fingerprint": fingerprint(route),
        "request_bytes_max": route.request_bytes_max(),
        "response_bytes_max": route.response_bytes_max(),
        "not_replayed": route.omitted_fields().map(http::HeaderName::as_str).collect::<Vec<_>>(),
        "duplicates": duplicates(route),
        "outcomes": outcomes(route),
        "unknown": unknown(route),
        "expired": expired(route),
        "store_failure": route.on_store_failure().name(),
        "closes": route.closes(),
        "problems": problems(route),
    })
}

/// Which updates must say which version they are for.
fn precondition(route: &Route) -> Value {
    match route.precondition() {
        PreconditionRule::Optional => json!({ "rule": "optional" }),
        PreconditionRule::Required => {
            let methods: Vec<_> = PreconditionRule::METHODS.iter().map(Method::as_str).collect();
            json!({ "rule": "required", "methods": methods })
        }
    }
}

fn key(route: &Route) -> Value {
    let shape = route.key_shape();
    json!({
        "rule": key_rule(route),
        "from": route.key_from().to_string(),
        "form": shape.form().name(),
        "length_min": shape.length_min(),
        "length_max": onceward::KEY_BYTES_MAX,
        "pattern": shape.pattern(),
    })
}

fn key_rule(route: &Route) -> &'static str {
    match route.key() {
        KeyRule::Required => "required",
        KeyRule::Optional => "optional",
        KeyRule::Ignored => "ignored",
    }
}

fn scope(route: &Route) -> Value {
    json!({
        "from": route.scope().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "anonymous": match route.on_anonymous() {
            OnAnonymous::Share => "shared",
            OnAnonymous::Refuse => "refused",
        },
    })
}

fn fingerprint(route: &Route) -> Value {
    let rules = route.fingerprint();
    json!({
        "members": pick(rules.members()),
        "parameters": pick(rules.parameters()),
        "fields": rules.headers().iter().map(http::HeaderName::as_str).collect::<Vec<_>>(),
        "host": rules.host(),
        // Every other field counts where nothing names the caller.
        "fields_that_name_no_caller": FIELDS_THAT_NAME_NO_CALLER
            .iter()
            .copied()
            .chain(rules.ignored_headers().iter().map(http::HeaderName::as_str))
            .collect::<Vec<_>>(),
    })
}

fn pick<T: ToString>(pick: &Pick<T>) -> Value {
    let names = |names: &[T]| names.iter().map(T::to_string).collect::<Vec<_>>();
    match pick {
        Pick::All => json!("all"),
        Pick::Only(only) => json!({ "only": names(only) }),
        Pick::Except(except) => json!({ "except": names(except) }),
    }
}

fn duplicates(route: &Route) -> Value {
    match route.policy().on_duplicate().wait_max() {
        Some(at_most) => json!({ "rule": "wait", "seconds_max": seconds(at_most) }),
        None => json!({ "rule": "conflict" }),
    }
}

/// By class, and by status where the contract or the route names it. What is not replayed has no retention.
fn outcomes(route: &Route) -> Value {
    let told = |action: Action, retention| match action {
        Action::Replay => json!({ "action": action.name(), "kept_seconds": kept(retention) }),
        Action::Retry | Action::Unknown => json!({ "action": action.name() }),
    };
    let mut outcomes = Map::new();
    for class in StatusClass::ALL {
        let (name, action) = (format!("{}xx", class.digit()), route.class_action(class));
        outcomes.insert(name, told(action, route.retention(class)));
    }
    for (status, action) in route.status_actions() {
        outcomes.insert(status.as_str().to_owned(), told(action, route.retention_of(status)));
    }
    let (from, to) = (LOST_RANGE.start(), LOST_RANGE.end());
    let lost = told(route.answer_lost_action(), route.retention(StatusClass::ServerError));
    outcomes.insert(format!("{from}-{to}"), lost);
    if route.frees_conflict_with_retry_after() {
        outcomes.insert("409 with Retry-After".to_owned(), json!({ "action": Action::Retry.name() }));
    }
    outcomes.into()
}

fn unknown(route: &Route) -> &'static str {
    if route.is_reconciled() { "reconcile" } else { route.policy().on_unknown().name() }
}

fn expired(route: &Route) -> Value {
    match route.policy().on_expired().tombstone() {
        None => json!({ "rule": "run" }),
        Some(keep) => json!({ "rule": "reject", "kept_seconds": kept(keep) }),
    }
}

fn problems(route: &Route) -> Vec<Value> {
    let problems = Problem::examples();
    let told = problems.iter().map(|problem| {
        json!({
            "type": problem.urn(),
            "title": problem.title(),
            "status": route.status_of(problem).as_u16(),
        })
    });
    told.collect()
}

/// `null` where it is kept forever.
fn kept(retention: Retention) -> Value {
    retention.duration().map_or(Value::Null, seconds)
}

/// Whole, where they are.
fn seconds(duration: Duration) -> Value {
    if duration.subsec_nanos() == 0 { duration.as_secs().into() } else { duration.as_secs_f64().into() }
}

/// The header parameter of the key, if it is in a header field.
fn parameter(route: &Route) -> Option<Value> {
    let field = route.key_from().field()?;
    let name = if *field == IDEMPOTENCY_KEY { "Idempotency-Key" } else { field.as_str() };
    let shape = route.key_shape();
    let mut schema = json!({ "type": "string" });
    // With quotes or without: the lengths and the pattern are of what is between them.
    if shape.form() == KeyForm::Raw {
        schema["minLength"] = shape.length_min().into();
        schema["maxLength"] = onceward::KEY_BYTES_MAX.into();
        if let Some(pattern) = shape.pattern() {
            schema["pattern"] = format!("^(?:{pattern})$").into();
        }
    }
    Some(json!({
        "name": name,
        "in": "header",
        "required": route.key() == KeyRule::Required,
        "description": "One new random value per intent, the same one on every retry.",
        "schema": schema,
    }))
}

/// What Onceward itself may answer, by status.
fn responses(route: &Route) -> Value {
    let mut responses = Map::new();
    for problem in Problem::examples() {
        let status = route.status_of(&problem).as_str().to_owned();
        let response = responses.entry(status).or_insert_with(|| {
            json!({
                "description": "",
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            })
        });
        let description = match response["description"].as_str() {
            Some("") | None => problem.name().to_owned(),
            Some(others) => format!("{others}, {}", problem.name()),
        };
        response["description"] = description.into();
    }
    responses.into()
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "instance", "retryable"],
        "properties": {
            "type": { "type": "string", "enum": Problem::examples().iter().map(Problem::urn).collect::<Vec<_>>() },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "instance": { "type": "string" },
            "retryable": { "type": "boolean", "description": "Whether the same request may be sent again as it is." },
            "original_status": { "type": "integer" },
        },
    })
}

#[cfg(test)]
#[path = "publication_test.rs"]
mod tests;
