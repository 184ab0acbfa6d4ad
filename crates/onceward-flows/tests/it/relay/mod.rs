//! Relays: everything that was committed is published, in its order, whatever fails.

mod compared;
mod publishing;
mod sharing;
