//! The types of the receipts API for searches: the scopes of a caller, and the audit.

use http::{HeaderName, HeaderValue, Request};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::admin::audit::AuditEntry;
use crate::admin::problem::Problem;
use crate::scope::CallerScope;

/// What the requests of a caller carry.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ScopesAsked {
    /// Header fields, one a line, such as `X-Tenant: acme`, or `jwt:CLAIM=VALUE` for a claim of a
    /// verified token, together with `jwt:iss=ISSUER` where tokens name their issuer.
    pub from: String,
}

/// The claims of a verified token that a search for scopes names: an extension of the request that
/// [`Admin::with_scopes_of`](crate::admin::Admin::with_scopes_of) gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchedClaims(Vec<(String, String)>);

impl SearchedClaims {
    /// The value of a claim.
    pub fn find(&self, claim: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == claim).map(|(_, value)| value.as_str())
    }
}

/// The scopes of a caller.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct ScopesShown {
    /// One for each source of scopes and each secret.
    pub scopes: Vec<String>,
}

/// How many entries of the audit.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditAsked {
    /// No more than this many; 100 if absent, 1000 at most.
    pub limit: Option<usize>,
    /// The `next` of an earlier page.
    pub cursor: Option<String>,
}

/// One page of the audit.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct AuditShown {
    /// The changes.
    pub entries: Vec<AuditEntry>,
    /// Give it as `cursor` to continue; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl ScopesAsked {
    /// A request that carries this, as far as a scope is read from it.
    pub(in crate::admin) fn request(&self) -> Result<Request<()>, Problem> {
        let mut request = Request::new(());
        let mut claims = SearchedClaims::default();
        for line in self.from.lines() {
            let wrong = || {
                Problem::Invalid(format!(
                    "`{line}` is not a header field such as `X-Tenant: acme`, nor `jwt:CLAIM=VALUE`"
                ))
            };
            if let Some((name, value)) = line.strip_prefix("jwt:").and_then(|claim| claim.split_once('=')) {
                request.extensions_mut().insert(CallerScope(value.to_owned()));
                claims.0.push((name.to_owned(), value.to_owned()));
                continue;
            }
            let (name, value) = line.split_once(':').ok_or_else(wrong)?;
            let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
            let value = HeaderValue::try_from(value.trim()).map_err(|_| wrong())?;
            request.headers_mut().append(name, value);
        }
        request.extensions_mut().insert(claims);
        Ok(request)
    }
}
