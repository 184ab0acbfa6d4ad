//! The routes of a running gateway, each with its own layer. A reload replaces the whole table; a request finishes with
//! the table that it started with.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Method, Request};
use onceward::Onceward;
use onceward_http::fingerprint::Secrets;
use onceward_http::publication::Document;
use onceward_http::{Admission, CallerScope, Metrics, OncewardLayer, OncewardService};
use tower_layer::Layer;

use super::body::GatewayBody;
use super::callers::Callers;
use super::forward::{Forward, Upstream};
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
}

/// The routes in effect.
pub struct RouteTable {
    entries: Vec<RouteEntry>,
    otherwise: RouteEntry,
    /// The document published at `/.well-known/idempotency`.
    published: Document,
}

struct RouteEntry {
    effective: EffectiveRoute,
    service: OncewardService<Forward>,
}

/// The current table, which a reload replaces while requests run.
pub type CurrentRoutes = ArcSwap<RouteTable>;

impl RouteTable {
    pub fn new(state: &GatewayState, routes: &Routes) -> Self {
        let named: Vec<(String, _)> =
            routes.each().map(|route| (route.pattern.to_string(), route.route.clone())).collect();
        Self {
            entries: routes.list.iter().map(|route| RouteEntry::new(state, route)).collect(),
            otherwise: RouteEntry::new(state, &routes.otherwise),
            published: Document::new(&named),
        }
    }

    pub fn published(&self) -> &Document {
        &self.published
    }

    /// The service for a request: that of the first route that matches.
    pub fn service(&self, method: &Method, path: &str) -> (OncewardService<Forward>, &ScopeSource) {
        let matching = self.entries.iter().find(|entry| entry.effective.is_for(method, path));
        let entry = matching.unwrap_or(&self.otherwise);
        (entry.service.clone(), &entry.effective.scope)
    }
}

impl RouteEntry {
    fn new(state: &GatewayState, effective: &EffectiveRoute) -> Self {
        let forward = Forward {
            upstream: state.upstream.clone(),
            key: effective.forward_key,
            answer_timeout: effective.answer_timeout,
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
        Self { effective: effective.clone(), service: layer.layer(forward) }
    }
}

impl GatewayState {
    /// Tells the layer the caller, for scopes that the gateway itself identifies.
    pub fn name_caller(&self, source: &ScopeSource, request: &mut Request<GatewayBody>) {
        // Only the gateway may set it.
        request.extensions_mut().remove::<CallerScope>();
        if let Some(caller) = self.callers.find(source, request) {
            request.extensions_mut().insert(CallerScope(caller));
        }
    }
}
