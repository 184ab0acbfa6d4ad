//! Reads the gateway's configuration: a TOML file, command-line flags and environment variables. An error names
//! the line and the field, and nothing is started.
//!
//! ```text
//!  flag ▸ environment variable ▸ file ▸ built-in default    for each top-level setting  (settings.rs)
//!  [[route]] ▸ [defaults] ▸ preset                          for each setting of a route (route_settings.rs)
//!                 └─▶ EffectiveRoute: every setting has a value (effective_route.rs) ─▶ onceward_http::Route
//! ```

mod check;
mod effective_route;
mod pattern;
mod route_settings;
mod settings;
mod values;
mod webhook_settings;

pub use check::Args as CheckArgs;
pub use effective_route::{EffectiveRoute, scope_of_layer};
pub use pattern::Pattern;
pub use route_settings::ScopeSource;
pub use settings::{Routes, Settings};
pub use values::Period;
