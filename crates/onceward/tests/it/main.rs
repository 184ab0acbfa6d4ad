//! The engine, through its public face, over a store whose every failure can be scripted and a clock
//! that only the test moves.

mod bounds;
mod crash;
mod duplicates;
mod ending;
mod expiry;
mod faults;
mod input;
mod json;
mod lease;
mod lease_transact;
mod simulated;
mod stage;
mod steps;
mod tickets;
mod worker;
