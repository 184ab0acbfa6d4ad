//! The outbox: messages exist if and only if their transaction commits, in the order of the commits.

mod interleavings;
mod machine;
mod overlapping;
mod rights;
mod writing;
