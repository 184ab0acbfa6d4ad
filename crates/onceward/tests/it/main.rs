//! Tests of the engine through its public API, over a store whose every failure can be scripted and a clock
//! that only the test moves.

mod bounds;
mod claim_in;
mod clocks;
mod closing;
mod cluster;
mod crash;
mod duplicates;
mod ending;
mod erase;
mod expiry;
mod faults;
mod front;
mod input;
mod json;
mod lease;
mod lease_transact;
mod simulated;
mod steps;
mod tickets;
mod worker;
mod worker_stop;
mod worker_take;
