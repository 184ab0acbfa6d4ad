//! Redis Streams, for the publisher and the source: how an entry is laid out, and how a position is made of its id.
//!
//! ```text
//! XADD PREFIX.PARTITION * id ID topic TOPIC position N [key KEY] [header.NAME VALUE]… payload BYTES
//! ```

use std::time::Duration;

use onceward::{Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};

pub(crate) const ID: &str = "id";
pub(crate) const TOPIC: &str = "topic";
pub(crate) const KEY: &str = "key";
pub(crate) const PAYLOAD: &str = "payload";
pub(crate) const POSITION: &str = "position";
pub(crate) const HEADER: &str = "header.";

/// How long opening a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Bits of the second number of an id: entries of the same millisecond.
const SEQUENCE_BITS: u32 = 20;

/// A client, or why the address is none.
pub(crate) fn client(url: &str) -> Result<Client> {
    Client::open(url).map_err(|error| {
        Error::new(ErrorKind::Invalid, "this is no address of a Redis server").caused_by(error)
    })
}

pub(crate) async fn connect(client: &Client, answer_max: Duration) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_MAX))
        .set_response_timeout(Some(answer_max));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(|error| failed("Redis cannot be reached", error))
}

pub(crate) fn failed(detail: &str, error: RedisError) -> Error {
    // What the server says is what a person needs: wrong password, no memory, read-only replica.
    let detail = match error.code() {
        Some(code) => format!("{detail}: {code} {}", error.detail().unwrap_or_default()),
        None => detail.to_owned(),
    };
    Error::new(ErrorKind::Unavailable, detail).caused_by(error)
}

/// The position of an entry: milliseconds and number, in one. `None` if they do not fit, which takes a million entries
/// in one millisecond, or an id that somebody chose.
pub(crate) fn position(id: &str) -> Option<i64> {
    let (milliseconds, number) = id.split_once('-')?;
    let (milliseconds, number): (u64, u64) = (milliseconds.parse().ok()?, number.parse().ok()?);
    let fits = number < 1 << SEQUENCE_BITS && milliseconds < 1 << (63 - SEQUENCE_BITS);
    fits.then(|| i64::try_from(milliseconds << SEQUENCE_BITS | number).ok())?
}

/// The id of the entry at a position.
pub(crate) fn entry_id(position: i64) -> String {
    let position = position.unsigned_abs();
    format!("{}-{}", position >> SEQUENCE_BITS, position & ((1 << SEQUENCE_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_grow_as_ids_do_and_lead_back_to_them() {
        let ids = ["0-1", "1-0", "1-1", "1700000000000-0", "1700000000000-1048575", "1700000000001-0"];
        let positions: Vec<i64> = ids.iter().map(|id| position(id).unwrap()).collect();
        assert!(positions.is_sorted_by(|one, two| one < two), "{positions:?}");
        for (id, position) in ids.iter().zip(positions) {
            assert_eq!(entry_id(position), *id);
        }
        assert_eq!(entry_id(0), "0-0");
    }

    #[test]
    fn ids_that_do_not_fit_are_none() {
        for id in ["", "1", "1-", "a-1", "1-1048576", "8796093022208-0", "18446744073709551615-1"] {
            assert_eq!(position(id), None, "{id}");
        }
    }
}
