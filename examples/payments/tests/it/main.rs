//! The payments example under fire: killed, its database killed, its primary replaced, with clients that
//! do not give up. What is counted at the end is the whole promise.

mod completed;
mod fire;
mod service;
mod verified;

#[path = "../../../../crates/onceward-stores/tests/servers/mod.rs"]
mod servers;

/// The usual amount, or the large one where `./check --long` asks for it.
fn usual_or_long<T>(usual: T, long: T) -> T {
    if std::env::var_os("ONCEWARD_LONG").is_some_and(|wanted| wanted == "1") { long } else { usual }
}
