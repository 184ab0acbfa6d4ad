//! The gateway in front of a service that does as it is told.

mod forwarding;
mod input;
mod kill;
mod races;
mod reload;
mod settings;
mod shared;
mod stage;
mod stop;
mod tls;
mod upstream;
mod verified;
