//! The client against real servers, through real sockets.

mod answers;
mod crash;
mod journal;
mod schedules;
mod server;
