//! Redis Streams as a source: each partition is a stream, read with `XREAD` from a position that is made of the entry's id.
//! No consumer groups: those redeliver out of order.
//!
//! Only their owner trims the streams (`XTRIM … MINID`); what was trimmed before it was handled is noticed.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use onceward::{Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{Client, Value, cmd};

use super::found::Found;
use super::gaps::Gaps;
use super::{Delivery, HandledMessage, Reader, Source, SourceFuture};
use crate::lane::LANES;
use crate::layout::Layout;
use crate::redis::{HEADER, ID, KEY, PAYLOAD, POSITION, TOPIC, client, connect, entry_id, failed, position};

/// Entries of one read.
const ENTRIES: usize = 200;
/// How long one read waits for entries.
const WAIT: Duration = Duration::from_secs(2);
/// How long the server may take for one answer, with one read that was dropped before it.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Reads what a `RedisPublisher` with the same prefix and number of partitions has published.
#[derive(Clone, Debug)]
pub struct RedisSource {
    client: Client,
    layout: Layout,
    gaps: Gaps,
}

impl RedisSource {
    /// Reads the streams `PREFIX.PARTITION`; a stream that does not exist is empty.
    pub fn new(url: &str, prefix: &str, partitions: u32) -> Result<Self> {
        let (client, layout) = (client(url)?, Layout::new(prefix, partitions)?);
        Ok(Self { client, layout, gaps: Gaps::default() })
    }

    /// How often a partition was opened that no longer had the last message that was handled: some behind it may have been
    /// trimmed unread.
    pub fn gaps(&self) -> u64 {
        self.gaps.count()
    }

    async fn check_streams(&self) -> Result<()> {
        let mut connection = connect(&self.client, ANSWER_MAX).await?;
        let partitions = self.layout.partitions();
        for partition in 0..partitions {
            let place = self.layout.place(partition);
            let kind: String = cmd("TYPE").arg(&place).query_async(&mut connection).await.map_err(lost)?;
            if !["none", "stream"].contains(&kind.as_str()) {
                let detail = format!("the key `{place}` is a {kind} and no stream");
                return Err(Error::new(ErrorKind::Unfit, detail));
            }
        }
        // A publisher with more partitions may have written to any of them first.
        let mut others = redis::pipe();
        for partition in partitions..LANES {
            others.cmd("EXISTS").arg(self.layout.place(partition));
        }
        let there: Vec<u32> = if partitions < LANES {
            others.query_async(&mut connection).await.map_err(lost)?
        } else {
            Vec::new()
        };
        let Some((partition, _)) = (partitions..).zip(there).find(|(_, there)| *there > 0) else {
            return Ok(());
        };
        let detail = format!(
            "there is a stream `{}`, which is none of {partitions} partitions of `{}`: its messages would never be handled",
            self.layout.place(partition),
            self.layout.prefix()
        );
        Err(Error::new(ErrorKind::Unfit, detail))
    }

    async fn open_partition(&self, partition: u32, after: i64) -> Result<Box<dyn Reader>> {
        let mut connection = connect(&self.client, ANSWER_MAX).await?;
        let place = self.layout.place(partition);
        if after > 0 {
            self.notice_gap(&mut connection, &place, after).await?;
        }
        Ok(Box::new(RedisReader { connection, place, after, read: VecDeque::new() }))
    }

    /// Entries are trimmed from the oldest on: if the last one that was handled is there, so is everything behind it.
    async fn notice_gap(
        &self,
        connection: &mut MultiplexedConnection,
        place: &str,
        after: i64,
    ) -> Result<()> {
        let edge = |command: &'static str, from: String, to: &'static str| {
            let mut edge = cmd(command);
            edge.arg(place).arg(from).arg(to).arg("COUNT").arg(1);
            edge
        };
        let first: Value =
            edge("XRANGE", "-".to_owned(), "+").query_async(&mut *connection).await.map_err(lost)?;
        let last: Value =
            edge("XREVRANGE", "+".to_owned(), "-").query_async(&mut *connection).await.map_err(lost)?;
        let id_of = |entries: &Value| -> Option<i64> {
            let Value::Array(entries) = entries else { return None };
            let Value::Array(entry) = entries.first()? else { return None };
            position(&text(entry.first()?)?)
        };
        if let Some(first) = id_of(&first).filter(|first| *first > after) {
            self.gaps.note(place, after, first);
        }
        // The stream was deleted, or the server has lost its end. New entries get the time as their id, so that they are
        // behind the position, unless the clock of the server is behind it too.
        if id_of(&last).is_none_or(|last| last < after) {
            let (seconds, _): (u64, u64) = cmd("TIME").query_async(connection).await.map_err(lost)?;
            if position(&format!("{}-0", (seconds + 1) * 1_000)).is_none_or(|now| now < after) {
                let detail = format!(
                    "the stream `{place}` ends before {}, up to which the consumer has handled it, and the clock of the \
                     server is behind that too: new messages would count as handled",
                    entry_id(after)
                );
                return Err(Error::new(ErrorKind::Foreign, detail));
            }
        }
        Ok(())
    }
}

impl Source for RedisSource {
    fn name(&self) -> &str {
        self.layout.prefix()
    }

    fn partitions(&self) -> u32 {
        self.layout.partitions()
    }

    fn check(&self, _: Option<Duration>) -> SourceFuture<'_, ()> {
        Box::pin(self.check_streams())
    }

    fn open(&self, partition: u32, after: i64) -> SourceFuture<'_, Box<dyn Reader>> {
        Box::pin(self.open_partition(partition, after))
    }

    fn handled<'a>(&'a self, _: &'a [HandledMessage]) -> SourceFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct RedisReader {
    /// Its own: a read that waits holds up everything behind it.
    connection: MultiplexedConnection,
    place: String,
    after: i64,
    read: VecDeque<Delivery>,
}

impl RedisReader {
    async fn next_delivery(&mut self) -> Result<Delivery> {
        loop {
            if let Some(delivery) = self.read.pop_front() {
                return Ok(delivery);
            }
            let mut read = cmd("XREAD");
            read.arg("COUNT").arg(ENTRIES).arg("BLOCK").arg(WAIT.as_millis().to_string());
            read.arg("STREAMS").arg(&self.place).arg(entry_id(self.after));
            let answer: Value = read.query_async(&mut self.connection).await.map_err(lost)?;
            for (id, fields) in entries(&answer) {
                let Some(position) = position(&id) else {
                    let detail = format!(
                        "the entry {id} of the stream `{}` has an id that is no time; remove it (XDEL) to continue",
                        self.place
                    );
                    return Err(Error::new(ErrorKind::Damaged, detail));
                };
                self.read.push_back(delivery(&self.place, &id, position, fields));
                self.after = position;
            }
        }
    }
}

impl Reader for RedisReader {
    fn next(&mut self) -> SourceFuture<'_, Delivery> {
        Box::pin(self.next_delivery())
    }
}

/// The ids and fields in the answer of `XREAD` for one stream.
fn entries(answer: &Value) -> Vec<(String, &[Value])> {
    let entries = match answer {
        // RESP 3.
        Value::Map(streams) => streams.first().map(|(_, entries)| entries),
        _ => items(answer).first().and_then(|stream| items(stream).get(1)),
    };
    let entries = entries.map(items).unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| Some((text(items(entry).first()?)?, items(items(entry).get(1)?))))
        .collect()
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    bytes(value).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn delivery(place: &str, id: &str, position: i64, fields: &[Value]) -> Delivery {
    let mut found = Found::default();
    let mut named: HashMap<&[u8], &[u8]> = HashMap::new();
    for pair in fields.chunks_exact(2) {
        if let (Some(name), Some(value)) = (bytes(&pair[0]), bytes(&pair[1])) {
            named.insert(name, value);
        }
    }
    for (name, value) in named {
        let name = String::from_utf8_lossy(name).into_owned();
        match name.as_str() {
            PAYLOAD => found.payload = Bytes::copy_from_slice(value),
            ID => found.id = found.text("the field `id`", value),
            TOPIC => found.topic = found.text("the field `topic`", value),
            KEY => found.ordering_key = found.text("the field `key`", value),
            POSITION => found.read_number(&String::from_utf8_lossy(value)),
            _ => {
                let header = name.strip_prefix(HEADER).map(str::to_owned);
                if let Some(header) = header
                    && let Some(value) = found.text(&format!("the field `{name}`"), value)
                {
                    found.headers.push((header, value));
                }
            }
        }
    }
    found.into_delivery(&format!("{place}:{id}"), position)
}

fn lost(error: redis::RedisError) -> Error {
    failed("Redis cannot be read", error)
}
