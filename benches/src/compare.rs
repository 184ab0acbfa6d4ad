//! The comparisons, one file each. Each takes a [`Scale`](crate::scale::Scale) and gives
//! [`Findings`](crate::report::Findings); none of them prints a result.

pub mod allocations;
pub mod client;
pub mod duplicates;
pub mod embedded;
pub mod engine;
pub mod front;
pub mod gateway;
pub mod growth;
pub mod instructions;
pub mod layer;
pub mod messages;
pub mod owner_death;
pub mod postgres;
pub mod postgres_growth;
pub mod redis;
pub mod saga;
pub mod sweep;
pub mod webhook;
pub mod worker;
