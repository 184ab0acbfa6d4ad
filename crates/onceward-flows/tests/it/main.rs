//! Messages, from outside: one binary, a module per topic. Every test is against real servers.

#![allow(clippy::large_futures, reason = "a test is one long future")]

mod barrier;
mod booking;
mod chain;
mod consumer;
mod engines;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod nats;
mod outbox;
mod rabbitmq;
mod redis;
mod relay;
mod saga;
mod saga_http;
mod saga_run;
mod saga_undo;
#[path = "../../../onceward-stores/tests/servers/mod.rs"]
mod servers;
mod suites;
mod support;
