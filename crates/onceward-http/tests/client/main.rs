//! The client against real servers, through real sockets.

mod answers;
mod contested;
mod crash;
mod journal;
mod plot;
mod power;
mod races;
mod schedules;
mod server;
mod settle;
mod staged;
mod storm;
mod withdrawn;

/// A client to be. In a workspace whose binary speaks TLS, reqwest wants to know how before it is built.
fn builder() -> onceward_http::client::Builder {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    onceward_http::client::Client::builder()
}
