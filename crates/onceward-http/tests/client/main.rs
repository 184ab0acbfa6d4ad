//! The client against real servers, through real sockets.

mod answers;
mod crash;
mod journal;
mod plot;
mod schedules;
mod server;
mod storm;
