//! The limit on file descriptors. Connections to clients and to the service are descriptors: without any left, nothing can be
//! accepted and nothing forwarded.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For the store, the admin listener, files and threads.
const RESERVED: u64 = 256;
/// A connection of a client, and one to the service for its request.
const PER_CONNECTION: u64 = 2;

/// Raises the limit to what the process may have, and returns it; `None` if there is no limit.
pub fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        // Some systems have a lower limit of their own.
        Err(_) => limit.current,
    }
}

/// The number of connections of clients that this many descriptors are enough for: at most `asked`, at least one.
pub fn connections(asked: usize, descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors else { return asked };
    // A limit as low as the reserve is shared half and half.
    let free = descriptors.saturating_sub(RESERVED).max(descriptors / 2);
    asked.min(usize::try_from(free / PER_CONNECTION).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
#[path = "file_descriptors_test.rs"]
mod tests;
