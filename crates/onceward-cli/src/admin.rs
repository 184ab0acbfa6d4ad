//! The admin listener of a running process: serves the routers of `onceward_http::admin` to operators, monitors and
//! services that use the receipts API. Requests to the gateway never arrive here.

pub mod dead_input;
pub mod dead_letters;
mod listen;
pub mod sagas;

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
/// With a token for applications too, each token opens only its own part.
pub fn auth(
    address: SocketAddr,
    token: Option<&str>,
    application_token: Option<&str>,
) -> Result<AdminAuth, String> {
    let auth = match (token, application_token) {
        (Some(token), Some(application_token)) => AdminAuth::tokens(application_token, token),
        (Some(token), None) => AdminAuth::token(token),
        (None, Some(_)) => {
            return Err("app_token: operators need a token too, or every program on this machine could settle and erase; set ONCEWARD_ADMIN_TOKEN".into());
        }
        (None, None) => AdminAuth::loopback_listener(address),
    };
    auth.map_err(|error| format!("{error} (ONCEWARD_ADMIN_TOKEN, ONCEWARD_APP_TOKEN)"))
}

/// All admin routes, those of sagas and of what is dead among them, with a span for each request.
pub fn router(admin: &Admin, auth: AdminAuth) -> Router {
    let admin = admin.clone().with_operator_routes(sagas::routes(admin).merge(dead_input::routes(admin)));
    admin.router(auth).layer(middleware::from_fn(traced))
}

async fn traced(request: Request, next: Next) -> Response {
    let span = telemetry::span("admin", &request);
    next.run(request).instrument(span).await
}
