//! Writes that are idempotent by themselves and need no receipt. Each reports whether this call made the change, so
//! that side effects follow only the first one.
//!
//! | file | idea |
//! |---|---|
//! | `state.rs` | one change of state |
//! | `machine.rs` | all allowed changes of state, declared once, with effects and a history |
//! | `machine/declaration.rs` | the same, declared in a TOML text |
//! | `machine/draw.rs` | a machine as a Mermaid diagram and as an SVG |
//! | `insert.rs` | a row by its business key: insert, or insert or change |
//! | `versioned.rs` | a write that depends on the version that the caller has seen |
//! | `statement.rs` | what their statements have in common |

mod insert;
mod machine;
mod state;
mod statement;
mod versioned;

pub use insert::{Inserted, Upserted, insert, upsert};
pub use machine::{Change, EffectFn, Machine, MachineBuilder, Moved, Reason};
pub use state::{States, Transition, transition};
pub use versioned::{If, TagColumn, Versioned, Written, versioned};
