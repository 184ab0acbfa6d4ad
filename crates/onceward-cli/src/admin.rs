//! The admin listener of a running process: the routers of `onceward_http::admin` on a listener of their own.
//! Everything an operator, a monitor or a service in another language asks of the process; no traffic of clients
//! passes here.

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

/// What clients of a listener at `address` need. Fails, with what to do about it, where anyone could use it.
pub fn auth(address: SocketAddr, token: Option<&str>) -> Result<AdminAuth, String> {
    let auth = match token {
        Some(token) => AdminAuth::token(token),
        None => AdminAuth::loopback_listener(address),
    };
    auth.map_err(|error| format!("{error} (ONCEWARD_ADMIN_TOKEN)"))
}

/// Everything there is, with a span for each request.
pub fn router(admin: &Admin, auth: AdminAuth) -> Router {
    admin.router(auth).layer(middleware::from_fn(traced))
}

async fn traced(request: Request, next: Next) -> Response {
    let span = telemetry::span("admin", &request);
    next.run(request).instrument(span).await
}
