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
mod tls;
mod withdrawn;

/// A client to be.
fn builder() -> onceward_client::Builder {
    onceward_client::Client::builder()
}
