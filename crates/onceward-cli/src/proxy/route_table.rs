//! The routes of a running gateway, each with its own layer. A reload replaces the whole table; a request finishes with
//! the table that it started with.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use http::{HeaderName, Method, Request};
use onceward::Onceward;
use onceward_http::fingerprint::Secrets;
use onceward_http::headers::IDEMPOTENCY_KEY;
use onceward_http::publication::Document;
use onceward_http::webhook::Arrivals;
use onceward_http::{
    Admission, AllowedOrigins, CallerScope, FormerCallers, Metrics, OncewardLayer, OncewardService, Route,
};
use tower_layer::Layer;

use super::body::GatewayBody;
use super::callers::Callers;
use super::forward::{Forward, Upstream};
use super::identity_terms::{FormerTable, FormerTerms, Terms, TermsTable};
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
    /// Whether request fields with `_` in their names pass.
    pub underscore_fields: bool,
    /// Where stored events are announced.
    pub arrivals: Arrivals,
    /// Whether the policy of the routes is published.
    pub publish: bool,
}

/// The routes in effect.
pub struct RouteTable {
    routes: Routes,
    entries: Vec<RouteEntry>,
    otherwise: RouteEntry,
    /// Terms under which receipts may exist, as they were kept and as they are looked up.
    former: Vec<TermsTable>,
    former_tables: Vec<FormerTable>,
    /// The fields from which some route takes a key or a scope, or which it compares.
    fields_read: Vec<HeaderName>,
    /// The document published at `/.well-known/idempotency`.
    published: Option<Document>,
}

struct RouteEntry {
    effective: EffectiveRoute,
    terms: Terms,
    /// The route of the layer, with its hook.
    route: Arc<Route>,
    forward: Forward,
    service: OncewardService<Forward>,
    /// Whether a request of this route can have had other terms.
    had_other_terms: bool,
    /// The services that claim under previous terms too, by the places of the previous routes.
    under_former_terms: Mutex<HashMap<Vec<usize>, UnderFormerTerms>>,
}

#[derive(Clone)]
struct UnderFormerTerms {
    service: OncewardService<Forward>,
    /// Those that differ.
    former: Arc<[FormerTerms]>,
}

/// The service for a request, and what its callers are told by.
pub struct Chosen<'t> {
    pub service: OncewardService<Forward>,
    scope: &'t [ScopeSource],
    former: Option<Arc<[FormerTerms]>>,
}

/// The current table, which a reload replaces while requests run.
pub type CurrentRoutes = ArcSwap<RouteTable>;

impl RouteTable {
    /// The table of these routes. Where a route names its intents by other terms than in a previous table, receipts
    /// under the former ones still count.
    pub fn new(state: &GatewayState, routes: &Routes, former: Vec<TermsTable>) -> Result<Self, String> {
        let named: Vec<(String, _)> =
            routes.each().map(|route| (route.pattern.to_string(), route.route.clone())).collect();
        let tables = former.iter().map(|table| FormerTable::new(table, state.path_rules));
        let former_tables = tables.collect::<Result<_, _>>()?;
        Ok(Self {
            entries: routes.list.iter().map(|route| RouteEntry::new(state, route, &former)).collect(),
            otherwise: RouteEntry::new(state, &routes.otherwise, &former),
            routes: routes.clone(),
            former,
            former_tables,
            fields_read: fields_read(routes),
            published: state.publish.then(|| Document::new(&named)),
        })
    }

    /// The routes that it was made of.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The previous terms that still count.
    pub fn former(&self) -> &[TermsTable] {
        &self.former
    }

    /// The fields from which some route takes a key or a scope, or which it compares.
    pub fn fields_read(&self) -> &[HeaderName] {
        &self.fields_read
    }

    /// The published policy, unless that is switched off.
    pub fn published(&self) -> Option<&Document> {
        self.published.as_ref()
    }

    /// The scopes of a caller whose requests look like this, on any route.
    pub fn scopes_of(&self, state: &GatewayState, request: &Request<()>) -> Vec<String> {
        let entries = self.entries.iter().chain([&self.otherwise]);
        let current = entries.map(|entry| (&entry.effective.scope, entry.effective.route.identity()));
        let former = self.former_tables.iter().flat_map(FormerTable::each);
        let former = former.map(|former| (&former.scope, &former.identity));
        let mut scopes = Vec::new();
        for (sources, identity) in current.chain(former) {
            for caller in Callers::claimed(sources, request) {
                let mut request = request.clone();
                request.extensions_mut().remove::<CallerScope>();
                if let Some(caller) = caller {
                    request.extensions_mut().insert(CallerScope(caller));
                }
                scopes.extend(identity.scopes_of(&request, &state.secrets));
            }
        }
        scopes.sort();
        scopes.dedup();
        scopes
    }

    fn entry(&self, method: &Method, path: &str) -> &RouteEntry {
        let matching = self.entries.iter().find(|entry| entry.effective.is_for(method, path));
        matching.unwrap_or(&self.otherwise)
    }

    /// The origins whose pages may use the route of such a request, which may have been refused for its path.
    pub fn allowed_origins(
        &self,
        state: &GatewayState,
        method: &Method,
        path: &str,
    ) -> Option<&AllowedOrigins> {
        let ruled = state.path_rules.apply(path);
        let path = ruled.as_ref().map_or(path, |ruled| &*ruled.compared);
        self.entry(method, &without_parameters(path)).route.allowed_origins()
    }

    /// Returns whether some route stores events.
    pub fn stores_events(&self) -> bool {
        self.routes.each().any(|route| stores_events(&route.route))
    }

    /// The route by which a stored event is delivered, if there still is one.
    pub fn delivers(&self, method: &Method, path: &str) -> Option<EffectiveRoute> {
        let effective = &self.entry(method, &without_parameters(path)).effective;
        stores_events(&effective.route).then(|| effective.clone())
    }

    /// The service for a request: that of the first route that matches. It claims under the previous terms of such
    /// requests too.
    pub fn service(&self, state: &GatewayState, method: &Method, path: &str) -> Chosen<'_> {
        let path = &*without_parameters(path);
        let entry = self.entry(method, path);
        let scope = &entry.effective.scope;
        if entry.had_other_terms {
            let found: Vec<(usize, &FormerTerms)> =
                self.former_tables.iter().map(|table| table.find(method, path)).collect();
            if found.iter().any(|(_, former)| former.terms != entry.terms) {
                let under = entry.under_former_terms(state, &found);
                return Chosen { service: under.service, scope, former: Some(under.former) };
            }
        }
        Chosen { service: entry.service.clone(), scope, former: None }
    }
}

impl RouteEntry {
    fn new(state: &GatewayState, effective: &EffectiveRoute, former: &[TermsTable]) -> Self {
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
        if let Some(receiver) = route.webhook()
            && let Some(stored) = receiver.store_first()
        {
            let stored = stored.clone().with_arrivals(state.arrivals.clone());
            let receiver = receiver.clone().with_store_first(stored);
            let storing = route.to_builder().with_webhook(receiver).build();
            route = Arc::new(storing.expect("other arrivals keep a valid route valid"));
        }
        let terms = Terms::of(effective);
        let pattern = state.path_rules.pattern(&effective.pattern);
        Self {
            effective: EffectiveRoute { pattern, ..effective.clone() },
            had_other_terms: former.iter().any(|table| table.may_differ_from(&terms)),
            terms,
            service: service(state, route.clone(), forward.clone()),
            route,
            forward,
            under_former_terms: Mutex::default(),
        }
    }

    /// The service that also claims under what was found in each former table.
    fn under_former_terms(&self, state: &GatewayState, found: &[(usize, &FormerTerms)]) -> UnderFormerTerms {
        let places: Vec<usize> = found.iter().map(|(place, _)| *place).collect();
        let mut services = self.under_former_terms.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let mut former: Vec<FormerTerms> = Vec::new();
            for (_, terms) in found {
                let is_new = former.iter().all(|other| other.terms != terms.terms);
                if is_new && terms.terms != self.terms {
                    former.push((*terms).clone());
                }
            }
            let mut route = self.route.to_builder();
            for terms in &former {
                route = route.with_former_identity(terms.identity.clone());
            }
            let route = Arc::new(route.build().expect("previous terms keep a valid route valid"));
            UnderFormerTerms { service: service(state, route, self.forward.clone()), former: former.into() }
        };
        services.entry(places).or_insert_with(make).clone()
    }
}

fn fields_read(routes: &Routes) -> Vec<HeaderName> {
    let mut fields = Vec::new();
    for route in routes.each() {
        fields.extend(route.route.key_from().field().cloned());
        fields.extend(route.route.fingerprint().headers().iter().cloned());
        fields.extend(route.scope.iter().filter_map(|source| match source {
            ScopeSource::Header(name) => Some(name.clone()),
            _ => None,
        }));
    }
    fields
}

fn stores_events(route: &Route) -> bool {
    route.webhook().is_some_and(|receiver| receiver.store_first().is_some())
}

fn service(state: &GatewayState, route: Arc<Route>, forward: Forward) -> OncewardService<Forward> {
    OncewardLayer::new(state.onceward.clone(), Secrets::clone(&state.secrets), route)
        .with_metrics(state.metrics.clone())
        .with_admission(state.admission.clone())
        .layer(forward)
}

impl GatewayState {
    /// Tells the layer the caller, for scopes that the gateway itself identifies.
    pub fn name_caller(&self, chosen: &Chosen<'_>, request: &mut Request<GatewayBody>) {
        // Only the gateway may set it.
        request.extensions_mut().remove::<CallerScope>();
        if let Some(caller) = self.callers.find(chosen.scope, request) {
            request.extensions_mut().insert(CallerScope(caller));
        }
        if let Some(former) = &chosen.former {
            let mut callers = FormerCallers::default();
            for terms in &**former {
                if let Some(caller) = self.callers.find(&terms.scope, request) {
                    callers = callers.with_caller(&terms.callers_from, CallerScope(caller));
                }
            }
            request.extensions_mut().insert(callers);
        }
    }
}
