//! The client against real servers, through real sockets.

mod answers;
mod crash;
mod credentials;
mod edit;
mod journal;
mod list;
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
fn builder() -> onceward_client::ClientBuilder {
    onceward_client::Client::builder()
}
