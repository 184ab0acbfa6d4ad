//! The client against real servers, through real sockets.

mod answers;
mod crash;
mod journal;
mod name_conflicts;
mod power_cut;
mod races;
mod schedules;
mod server;
mod settle;
mod settle_races;
mod staged_store;
mod storm;
mod storm_plot;
mod tls;

/// A client to be.
fn builder() -> onceward_client::Builder {
    onceward_client::Client::builder()
}
