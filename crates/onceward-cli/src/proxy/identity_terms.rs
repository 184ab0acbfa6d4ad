//! The terms by which the routes of a gateway name intents, as a table that can be kept: who asks (scope) and what for
//! (operation). A gateway whose terms differ from those that receipts in its store were written under claims under
//! both, so that no retry runs again.

use http::Method;
use onceward_http::{Identity, OnAnonymous, Operation};
use serde::{Deserialize, Serialize};

use super::path_rules::{PathParameters, PathRules, Spelling};
use crate::config::{EffectiveRoute, Pattern, Routes, ScopeSource, scope_of_layer};

/// The terms of all routes of a gateway, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TermsTable {
    routes: Vec<RouteTerms>,
    otherwise: Terms,
    /// How paths are compared, unless it is as by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paths: Option<PathTerms>,
}

/// The rules by which two paths are one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting, and is kept under its name")]
struct PathTerms {
    normalise: bool,
    case_ignored: bool,
    trailing_slash_ignored: bool,
    /// Left out where it is false: tables from before it was there stay the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    parameters_ignored: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteTerms {
    path: String,
    /// `None`: all.
    methods: Option<Vec<String>>,
    terms: Terms,
}

/// The terms of one route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// As in the configuration.
    scope: Vec<String>,
    anonymous: Option<Anonymous>,
    /// `None`: by the path.
    operation: Option<String>,
    /// Where the key comes from.
    key_from: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Anonymous {
    Share,
    Refuse,
}

/// A table in use: former terms, by the route that a request had.
pub struct FormerTable {
    routes: Vec<(Pattern, Option<Vec<Method>>, FormerTerms)>,
    otherwise: FormerTerms,
}

/// Former terms of one route.
#[derive(Clone, Debug)]
pub struct FormerTerms {
    pub terms: Terms,
    pub identity: Identity,
    /// The name under which the layer finds the caller by these sources.
    pub callers_from: String,
    pub scope: Vec<ScopeSource>,
}

impl TermsTable {
    /// The terms of these routes. Routes that change nothing are left out, so that a table stays the same when a route
    /// is added that names its intents like all others.
    pub fn of(routes: &Routes) -> Self {
        let route_terms = |route: &EffectiveRoute| RouteTerms {
            path: route.pattern.as_str().to_owned(),
            methods: route.methods.as_ref().map(|methods| methods.iter().map(Method::to_string).collect()),
            terms: Terms::of(route),
        };
        let otherwise = Terms::of(&routes.otherwise);
        let mut list: Vec<RouteTerms> = routes.list.iter().map(route_terms).collect();
        while list.last().is_some_and(|last| last.terms == otherwise) {
            list.pop();
        }
        Self { routes: list, otherwise, paths: None }
    }

    /// Sets how paths are compared.
    pub fn with_path_rules(mut self, rules: PathRules) -> Self {
        let terms = PathTerms {
            normalise: rules.normalise,
            case_ignored: rules.case == Spelling::Ignore,
            trailing_slash_ignored: rules.trailing_slash == Spelling::Ignore,
            parameters_ignored: rules.parameters == PathParameters::Ignore,
        };
        self.paths = (terms != PathTerms::DEFAULT).then_some(terms);
        self
    }

    /// Returns whether paths were compared in another way: a path that is spelled as before would then be another
    /// operation, and a retry of an earlier request would run again.
    pub fn other_path_rules(&self, former: &Self) -> Option<String> {
        (self.paths != former.paths).then(|| {
            "normalise, path_case, trailing_slash, path_parameters: receipts in the store were written under other rules for \
             paths: a retry of an earlier request could run again; if that is meant, start the gateway once with \
             --accept-new-identity"
                .to_owned()
        })
    }

    /// Every kind of terms in the table.
    fn each(&self) -> impl Iterator<Item = &Terms> {
        self.routes.iter().map(|route| &route.terms).chain([&self.otherwise])
    }

    /// A route that was there before and took its keys from elsewhere: its receipts could not be found any more, so every
    /// retry of an earlier request would run again.
    pub fn other_key_source(&self, former: &Self) -> Option<String> {
        for route in &self.routes {
            let Some(before) = former.routes.iter().find(|before| before.path == route.path) else {
                continue;
            };
            let (now, then) = (&route.terms.key_from, &before.terms.key_from);
            if now != then {
                return Some(format!(
                    "{}: key_from: the keys of this route were from {then} and would be from {now}: every retry of an \
                     earlier request would run again; if that is meant, start the gateway once with \
                     --accept-new-identity",
                    route.path
                ));
            }
        }
        None
    }

    /// Returns whether some request can have other terms than these.
    pub fn may_differ_from(&self, terms: &Terms) -> bool {
        self.each().any(|own| own != terms)
    }

    /// The sources of all scopes.
    pub fn scope_sources(&self) -> Result<Vec<ScopeSource>, String> {
        let mut sources = Vec::new();
        for terms in self.each() {
            sources.extend(terms.sources()?);
        }
        Ok(sources)
    }
}

impl PathTerms {
    const DEFAULT: Self = Self {
        normalise: true,
        case_ignored: false,
        trailing_slash_ignored: false,
        parameters_ignored: false,
    };
}

impl Terms {
    pub fn of(route: &EffectiveRoute) -> Self {
        let identity = route.route.identity();
        Self {
            scope: route.scope.iter().map(ScopeSource::to_string).collect(),
            anonymous: identity.on_anonymous().map(|rule| match rule {
                OnAnonymous::Share => Anonymous::Share,
                OnAnonymous::Refuse => Anonymous::Refuse,
            }),
            operation: identity.operation().name().map(str::to_owned),
            key_from: route.route.key_from().to_string(),
        }
    }

    fn sources(&self) -> Result<Vec<ScopeSource>, String> {
        self.scope.iter().map(|source| source.parse()).collect()
    }
}

impl FormerTable {
    /// The table, with paths compared by these rules.
    pub fn new(table: &TermsTable, rules: PathRules) -> Result<Self, String> {
        let route = |route: &RouteTerms| -> Result<_, String> {
            let pattern: Pattern = route.path.parse()?;
            let method = |method: &String| {
                Method::from_bytes(method.as_bytes()).map_err(|error| format!("`{method}`: {error}"))
            };
            let methods = route.methods.as_ref().map(|methods| methods.iter().map(method).collect());
            Ok((rules.pattern(&pattern), methods.transpose()?, FormerTerms::new(&route.terms)?))
        };
        let routes = table.routes.iter().map(route).collect::<Result<_, _>>()?;
        Ok(Self { routes, otherwise: FormerTerms::new(&table.otherwise)? })
    }

    /// The place and the terms of the route that such a request had.
    pub fn find(&self, method: &Method, path: &str) -> (usize, &FormerTerms) {
        let matching = |(pattern, methods, _): &(Pattern, Option<Vec<Method>>, FormerTerms)| {
            methods.as_ref().is_none_or(|methods| methods.contains(method)) && pattern.matches(path)
        };
        match self.routes.iter().position(matching) {
            Some(at) => (at, &self.routes[at].2),
            None => (self.routes.len(), &self.otherwise),
        }
    }

    /// Every kind of terms in the table.
    pub fn each(&self) -> impl Iterator<Item = &FormerTerms> {
        self.routes.iter().map(|(_, _, terms)| terms).chain([&self.otherwise])
    }
}

impl FormerTerms {
    fn new(terms: &Terms) -> Result<Self, String> {
        let scope = terms.sources()?;
        let anonymous = terms.anonymous.map(|rule| match rule {
            Anonymous::Share => OnAnonymous::Share,
            Anonymous::Refuse => OnAnonymous::Refuse,
        });
        let operation = match &terms.operation {
            Some(name) => Operation::named(name).map_err(|error| error.to_string())?,
            None => Operation::Path,
        };
        let callers_from = terms.scope.join(" ");
        let identity = Identity::new(scope.iter().map(scope_of_layer), anonymous, operation)
            .with_callers_from(callers_from.clone());
        Ok(Self { terms: terms.clone(), identity, callers_from, scope })
    }
}

#[cfg(test)]
#[path = "identity_terms_test.rs"]
mod tests;
