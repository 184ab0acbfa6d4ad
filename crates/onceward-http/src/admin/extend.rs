//! What another crate needs to add routes for operators: the same token, the same document, the same problems, and an
//! entry of the audit for each change. This crate knows neither sagas nor messages, so their routes are not here.

use onceward::{Cursor, Onceward};
use utoipa_axum::router::OpenApiRouter;

use super::Admin;
use super::api::shape;
pub use super::api::{ApiResult, QueryParams};
pub use super::audit::AuditEntry;
pub use super::json::Json;
pub use super::problem::Problem;

impl Admin {
    /// Adds routes behind the token of operators, and what describes them to the document.
    #[doc(hidden)]
    pub fn with_operator_routes(mut self, routes: OpenApiRouter) -> Self {
        self.operator_routes = self.operator_routes.merge(routes);
        self
    }

    /// The engine that it speaks for.
    #[doc(hidden)]
    pub fn onceward(&self) -> &Onceward {
        &self.onceward
    }
}

/// A place in a list as answers have it.
pub fn cursor_text(Cursor(bytes): &Cursor) -> String {
    shape::to_base64(bytes)
}

/// A place in a list, as an earlier page gave it.
pub fn cursor(text: &str) -> Result<Cursor, Problem> {
    shape::cursor(text)
}
