//! The admin listener of a running process: serves the routers of `onceward_http::admin` to operators, monitors and
//! services that use the receipts API. Requests to the gateway never arrive here.

mod listen;

use std::net::SocketAddr;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use onceward_http::admin::{Admin, AdminAuth};
use tracing::Instrument;

pub use listen::serve;
pub use onceward_http::admin::shape;

use crate::telemetry;

/// What clients of the admin listener at `address` must send. Fails if the address is not loopback and there is no token.
pub fn auth(address: SocketAddr, token: Option<&str>) -> Result<AdminAuth, String> {
    let auth = match token {
        Some(token) => AdminAuth::token(token),
        None => AdminAuth::loopback_listener(address),
    };
    auth.map_err(|error| format!("{error} (ONCEWARD_ADMIN_TOKEN)"))
}

/// All admin routes, with a span for each request.
pub fn router(admin: &Admin, auth: AdminAuth) -> Router {
    admin.router(auth).layer(middleware::from_fn(traced))
}

async fn traced(request: Request, next: Next) -> Response {
    let span = telemetry::span("admin", &request);
    next.run(request).instrument(span).await
}
