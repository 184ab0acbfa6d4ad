//! The layer around an axum service, through real sockets and by a client that reads every byte.

mod admin;
mod admission;
mod answers;
mod bodies;
mod closes;
mod drops;
mod duplicates;
mod extract;
mod held_store;
mod manual;
mod outcomes;
#[cfg(feature = "admin")]
mod precondition;
mod reconcile;
mod rotation;
mod routes;
mod same_request;
mod same_request_time;
mod stage;
mod store;
mod store_first;
mod streams;
mod transactions;
#[cfg(feature = "admin")]
mod versions;
