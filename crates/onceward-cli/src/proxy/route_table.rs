//! The routes of a running gateway, each with its own layer. A reload replaces the whole table; a request finishes with
//! the table that it started with.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Method, Request};
use onceward::Onceward;
use onceward_http::fingerprint::Secrets;
use onceward_http::headers::IDEMPOTENCY_KEY;
use onceward_http::publication::Document;
use onceward_http::{Admission, CallerScope, Metrics, OncewardLayer, OncewardService};
use tower_layer::Layer;

use super::body::GatewayBody;
use super::callers::Callers;
use super::forward::{Forward, Upstream};
use super::path_rules::{PathRules, without_parameters};
use super::reconcile::HttpReconciler;
use crate::config::{EffectiveRoute, Routes, ScopeSource};

/// The state that a gateway keeps across reloads.
pub struct GatewayState {
    pub onceward: Onceward,
    pub secrets: Arc<Secrets>,
    pub metrics: Arc<Metrics>,
    pub admission: Arc<Admission>,
    pub upstream: Arc<Upstream>,
    pub callers: Callers,
    pub path_rules: PathRules,
    /// Whether the policy of the routes is published.
    pub publish: bool,
}

/// The routes in effect.
pub struct RouteTable {
    entries: Vec<RouteEntry>,
    otherwise: RouteEntry,
    /// The document published at `/.well-known/idempotency`.
    published: Option<Document>,
}

struct RouteEntry {
    effective: EffectiveRoute,
    service: OncewardService<Forward>,
}

/// The current table, which a reload replaces while requests run.
pub type CurrentRoutes = ArcSwap<RouteTable>;

impl RouteTable {
    /// The table of these routes. `before` is the one that it replaces: where a route names its intents by other terms
    /// now, receipts under the former ones still count. Fails if they could not be found.
    pub fn new(state: &GatewayState, routes: &Routes, before: Option<&Self>) -> Result<Self, String> {
        let routes = &with_former_terms(routes, before)?;
        let named: Vec<(String, _)> =
            routes.each().map(|route| (route.pattern.to_string(), route.route.clone())).collect();
        Ok(Self {
            entries: routes.list.iter().map(|route| RouteEntry::new(state, route)).collect(),
            otherwise: RouteEntry::new(state, &routes.otherwise),
            published: state.publish.then(|| Document::new(&named)),
        })
    }

    /// The published policy, unless that is switched off.
    pub fn published(&self) -> Option<&Document> {
        self.published.as_ref()
    }

    /// The scopes of a caller whose requests look like this, on any route.
    pub fn scopes_of(&self, state: &GatewayState, request: &Request<()>) -> Vec<String> {
        let entries = self.entries.iter().chain([&self.otherwise]);
        let mut scopes: Vec<String> =
            entries.flat_map(|entry| entry.effective.route.scopes_of(request, &state.secrets)).collect();
        scopes.sort();
        scopes.dedup();
        scopes
    }

    /// The service for a request: that of the first route that matches.
    pub fn service(&self, method: &Method, path: &str) -> (OncewardService<Forward>, &[ScopeSource]) {
        let path = &*without_parameters(path);
        let matching = self.entries.iter().find(|entry| entry.effective.is_for(method, path));
        let entry = matching.unwrap_or(&self.otherwise);
        (entry.service.clone(), &entry.effective.scope)
    }
}

/// The routes, each with the terms under which the table before knew its intents.
fn with_former_terms(routes: &Routes, before: Option<&RouteTable>) -> Result<Routes, String> {
    let mut routes = routes.clone();
    let Some(before) = before else { return Ok(routes) };
    for route in routes.list.iter_mut().chain([&mut routes.otherwise]) {
        let path = route.pattern.as_str();
        let former = before.entries.iter().map(|entry| &entry.effective);
        // The route with this pattern, or else the one that its paths have matched.
        let same = former.clone().find(|former| former.pattern.as_str() == path);
        let matching = || former.clone().find(|former| former.pattern.matches(path));
        // A route that is new may take its keys from elsewhere; one that was there before may not.
        let former_source = same.map(|former| former.route.key_from());
        let former = same.or_else(matching).unwrap_or(&before.otherwise.effective);
        let (now, then) = (route.route.identity(), former.route.identity());
        let verified = |scope: &[ScopeSource]| -> Vec<ScopeSource> {
            let verified = |source: &&ScopeSource| matches!(source, ScopeSource::Jwt(_) | ScopeSource::Mtls);
            scope.iter().filter(verified).cloned().collect()
        };
        let source = route.route.key_from();
        if let Some(former_source) = former_source.filter(|former| *former != source) {
            return Err(format!(
                "{path}: key_from: the keys of this route were from {former_source} and would be from {source}: every retry \
                 of a request from before would run again; restart the gateway if that is meant"
            ));
        }
        let mut builder = route.route.to_builder();
        for earlier in former.route.former_identities() {
            builder = builder.with_former_identity(earlier.clone());
        }
        if now != then || route.scope != former.scope {
            let before = verified(&former.scope);
            if !before.is_empty() && before != verified(&route.scope) {
                return Err(format!(
                    "{path}: the scope was from verified callers ({before:?}), and receipts under it could not be found \
                     any more: every retry would run again; restart the gateway if that is meant"
                ));
            }
            tracing::warn!(
                route = path,
                "scope or operation of a route has changed: until the gateway is restarted its requests are claimed \
                 under the former terms too, so that no retry runs again"
            );
            builder = builder.with_former_identity(then.clone());
        }
        route.route = Arc::new(builder.build().map_err(|error| format!("{path}: {error}"))?);
    }
    Ok(routes)
}

impl RouteEntry {
    fn new(state: &GatewayState, effective: &EffectiveRoute) -> Self {
        let forward = Forward {
            upstream: state.upstream.clone(),
            key: effective.forward_key,
            key_field: effective.route.key_from().field().cloned().unwrap_or(IDEMPOTENCY_KEY),
            answer_timeout: effective.answer_timeout,
            reuse: effective.upstream_reuse,
        };
        let mut route = effective.route.clone();
        if let Some(template) = &effective.reconcile_url {
            let hook = HttpReconciler {
                upstream: state.upstream.clone(),
                template: template.clone(),
                key: effective.forward_key,
                answer_timeout: effective.answer_timeout,
            };
            let reconciled = route.to_builder().with_reconcile(hook).build();
            route = Arc::new(reconciled.expect("a reconcile hook keeps a valid route valid"));
        }
        let (onceward, secrets) = (state.onceward.clone(), Secrets::clone(&state.secrets));
        let layer = OncewardLayer::new(onceward, secrets, route)
            .with_metrics(state.metrics.clone())
            .with_admission(state.admission.clone());
        let pattern = state.path_rules.pattern(&effective.pattern);
        Self { effective: EffectiveRoute { pattern, ..effective.clone() }, service: layer.layer(forward) }
    }
}

impl GatewayState {
    /// Tells the layer the caller, for scopes that the gateway itself identifies.
    pub fn name_caller(&self, sources: &[ScopeSource], request: &mut Request<GatewayBody>) {
        // Only the gateway may set it.
        request.extensions_mut().remove::<CallerScope>();
        if let Some(caller) = self.callers.find(sources, request) {
            request.extensions_mut().insert(CallerScope(caller));
        }
    }
}
