//! Tests of the gateway in front of a scripted service.

mod certificates;
mod forwarding;
mod input;
mod kill;
mod profile;
mod races;
mod reload;
mod settings;
mod shared;
mod stage;
mod stop;
mod tls;
mod tokens;
mod upstream;
mod upstream_tls;
mod verified;
