//! The contract of one route: which requests are guarded, and what is promised for them.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, Method, StatusCode};
use onceward::{OPERATION_BYTES_MAX, Policy};

use crate::fingerprint;
use crate::key::KeyForm;
use crate::scope::ScopeFrom;

/// Whether a guarded request must have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// Without one it is refused.
    Required,
    /// Without one it passes untouched.
    Optional,
    /// Keys are not looked at.
    Ignored,
}

/// What a response means for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is the answer: kept and replayed.
    Replay,
    /// It is passed on and forgotten: the key is free again.
    Retry,
    /// It leaves the effect in doubt: the policy decides.
    Unknown,
}

/// What is promised for a route. The default is the IETF profile: keys required on POST and PATCH,
/// answers kept for 24 hours, duplicates wait, server errors free the key.
#[derive(Clone, Debug)]
pub struct Route {
    pub(crate) key: KeyRule,
    pub(crate) form: KeyForm,
    pub(crate) methods: Vec<Method>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) scope: ScopeFrom,
    pub(crate) fingerprint: fingerprint::Rules,
    pub(crate) request_bytes_max: usize,
    pub(crate) response_bytes_max: usize,
    pub(crate) omitted: Vec<HeaderName>,
    pub(crate) actions: Vec<(StatusCode, Action)>,
    pub(crate) server_errors: Action,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            key: KeyRule::Required,
            form: KeyForm::default(),
            methods: vec![Method::POST, Method::PATCH],
            policy: Arc::new(Policy::http()),
            scope: ScopeFrom::default(),
            fingerprint: fingerprint::Rules::default(),
            request_bytes_max: 1 << 20,
            response_bytes_max: 256 << 10,
            omitted: Vec::new(),
            actions: [408, 412, 425, 429]
                .map(|code| (StatusCode::from_u16(code).expect("valid"), Action::Retry))
                .into(),
            server_errors: Action::Retry,
        }
    }
}

impl Route {
    /// Sets whether a key is required.
    pub fn key(mut self, rule: KeyRule) -> Self {
        self.key = rule;
        self
    }

    /// Sets how strictly keys are read.
    pub fn key_form(mut self, form: KeyForm) -> Self {
        self.form = form;
        self
    }

    /// Sets which methods are guarded.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Sets the contract: lease, retention, duplicates, unknown outcomes.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Arc::new(policy);
        self
    }

    /// Sets where the scope comes from.
    pub fn scope(mut self, scope: ScopeFrom) -> Self {
        self.scope = scope;
        self
    }

    /// Sets what of a request its fingerprint is made of.
    pub fn fingerprint(mut self, rules: fingerprint::Rules) -> Self {
        self.fingerprint = rules;
        self
    }

    /// Sets the largest request body. It is read whole before the claim, so that it can be compared.
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// Sets the largest response body that is kept. A larger one is passed on and not replayed.
    pub fn response_bytes_max(mut self, bytes: usize) -> Self {
        self.response_bytes_max = bytes;
        self
    }

    /// Adds a response field that is never stored.
    pub fn omit(mut self, name: HeaderName) -> Self {
        self.omitted.push(name);
        self
    }

    /// Sets what a response with this status means for its key.
    pub fn on_status(mut self, status: StatusCode, action: Action) -> Self {
        self.actions.retain(|(other, _)| *other != status);
        self.actions.push((status, action));
        self
    }

    /// Sets what a 5xx response means for its key.
    pub fn on_server_error(mut self, action: Action) -> Self {
        self.server_errors = action;
        self
    }

    pub(crate) fn action(&self, status: StatusCode) -> Action {
        match self.actions.iter().find(|(listed, _)| *listed == status) {
            Some((_, action)) => *action,
            None if status.is_server_error() => self.server_errors,
            None => Action::Replay,
        }
    }

    /// What the request is for: its method and its path. A path that does not fit is hashed.
    pub(crate) fn operation(parts: &Parts) -> String {
        let (method, path) = (parts.method.as_str(), parts.uri.path());
        let fits = method.len() + 1 + path.len() <= OPERATION_BYTES_MAX / 2;
        let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if fits && plain {
            format!("{method} {path}")
        } else {
            format!("{method} ~{}", blake3::hash(path.as_bytes()).to_hex())
        }
    }
}
