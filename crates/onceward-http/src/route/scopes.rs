//! The scopes that a caller may have on a route, for searches by operators.

use http::Request;

use super::Route;
use crate::fingerprint::{Caller, Secrets};
use crate::identity::Identity;
use crate::request_fields::RequestFields;
use crate::scope::{self, CallerHead, OnAnonymous, ScopeFrom};

impl Route {
    /// The scopes under which this route keeps the receipts of such requests: one for each secret, none if the requests
    /// do not say who asks or the route does not ask.
    pub fn scopes_of<B>(&self, request: &Request<B>, secrets: &Secrets) -> Vec<String> {
        self.identity.scopes_of(request, secrets)
    }
}

impl Identity {
    /// The scopes that such requests have under these terms; see [`Route::scopes_of`].
    pub fn scopes_of<B>(&self, request: &Request<B>, secrets: &Secrets) -> Vec<String> {
        if self.scope == [ScopeFrom::Shared] {
            return Vec::new();
        }
        let extensions = request.extensions();
        let (caller, forwarded_host) = (extensions.get(), extensions.get());
        let (uri, headers) = (request.uri(), request.headers());
        let fields = RequestFields::of(headers);
        let head = CallerHead { uri, headers, fields, caller, forwarded_host };
        secrets
            .all()
            .filter_map(|secret| scope::read(&self.scope, Some(OnAnonymous::Refuse), head, secret).ok())
            .filter(|(_, caller)| *caller == Caller::Named)
            .map(|(scope, _)| scope.as_str().to_owned())
            .collect()
    }
}
