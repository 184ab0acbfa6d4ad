//! Tests the payments example with kills: of the service, of its database, with a failover to a standby, while
//! clients retry. At the end, each acknowledged key must have exactly one charge.

mod completed;
mod kills;
mod service;
#[cfg(unix)]
mod stop;
mod verified;

#[path = "../../../../crates/onceward-stores/tests/servers/mod.rs"]
mod servers;

/// The usual amount, or the large one where `./check --long` asks for it.
fn usual_or_long<T>(usual: T, long: T) -> T {
    if std::env::var_os("ONCEWARD_LONG").is_some_and(|wanted| wanted == "1") { long } else { usual }
}
