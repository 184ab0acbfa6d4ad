//! Relays: everything that was committed is published, in its order, whatever fails.

mod compared;
mod paused;
pub(crate) mod publishing;
mod refused;
mod sharing;
