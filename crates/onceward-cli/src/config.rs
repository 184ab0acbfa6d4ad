//! The configuration: one TOML file, the same values as flags and environment variables, and what comes
//! out of them. An error names the line and the field, and starts nothing.
//!
//! ```text
//!  flags ▸ environment ▸ file ▸ built in            one value at a time (settings.rs)
//!  [[route]] ▸ [defaults] ▸ preset                  one term at a time  (terms.rs)
//!                                └─▶ Effective: every term has a value  (effective.rs) ─▶ onceward_http::Route
//! ```

mod check;
mod effective;
mod pattern;
mod settings;
mod terms;
mod values;

pub use check::Args as CheckArgs;
pub use effective::{Effective, ScopeSource};
pub use settings::{Routes, Settings};
pub use values::Period;
