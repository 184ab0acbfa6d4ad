//! A minimal HTTP/1.1 client that can hold back the last byte of a request.

use std::io;
use std::time::Instant;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::message::{Answer, Meaning, Request, encode};
use super::volley::HttpVersion;
use super::wire::{self, Wire};

/// The largest answer that is read, so that an endpoint cannot exhaust the verifier's memory.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Nor has it more fields.
const FIELDS_MAX: usize = 128;

/// A request that was sent but for its last byte.
#[derive(Debug)]
pub(super) struct HeldRequest {
    wire: Box<dyn Wire>,
    /// The last byte; under TLS, its record.
    last: Vec<u8>,
}

/// Connects and sends everything but the last byte.
pub(super) async fn hold(request: &Request) -> io::Result<HeldRequest> {
    let mut wire = request.place.connect(HttpVersion::Http1).await?;
    let bytes = encode(request);
    let (most, last) = bytes.split_at(bytes.len() - 1);
    wire.write_all(most).await?;
    wire.flush().await?;
    let last = wire.seal(last)?;
    Ok(HeldRequest { wire, last })
}

impl HeldRequest {
    /// Sends the last byte, without waiting for anything. Says when.
    pub(super) fn release(&self) -> io::Result<Instant> {
        wire::release(&*self.wire, &self.last)
    }

    /// Reads the answer. Dropping the future hangs up.
    pub(super) async fn answer(self) -> io::Result<Answer> {
        Reader { wire: self.wire, bytes: Vec::new() }.answer().await
    }
}

struct Reader {
    wire: Box<dyn Wire>,
    bytes: Vec<u8>,
}

enum Length {
    Known(usize),
    Chunks,
    UntilTheEnd,
}

impl Reader {
    async fn answer(mut self) -> io::Result<Answer> {
        let (mut answer, length) = loop {
            let (answer, length) = self.head().await?;
            // 100 and 103 come before the answer.
            if answer.status >= 200 {
                break (answer, length);
            }
        };
        let body = match length {
            Length::Known(bytes) => self.take(bytes).await?,
            Length::Chunks => self.chunks().await?,
            Length::UntilTheEnd => {
                while self.more().await? {}
                std::mem::take(&mut self.bytes)
            }
        };
        answer.body = Bytes::from(body);
        Ok(answer)
    }

    async fn head(&mut self) -> io::Result<(Answer, Length)> {
        loop {
            if let Some((end, head)) = parse_head(&self.bytes)? {
                self.bytes.drain(..end);
                return Ok(head);
            }
            if !self.more().await? {
                return Err(ended(self.bytes.is_empty()));
            }
        }
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| malformed("the size of a chunk"))?;
            if size == 0 {
                // Trailers, then an empty line.
                while !self.line().await?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.take(size).await?);
            if !self.line().await?.is_empty() {
                return Err(malformed("the end of a chunk"));
            }
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
                self.bytes.drain(..end + 2);
                return Ok(line);
            }
            if !self.more().await? {
                return Err(ended(false));
            }
        }
    }

    async fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        while self.bytes.len() < bytes {
            if !self.more().await? {
                return Err(ended(false));
            }
        }
        Ok(self.bytes.drain(..bytes).collect())
    }

    /// Reads on; false at the end.
    async fn more(&mut self) -> io::Result<bool> {
        if self.bytes.len() > ANSWER_BYTES_MAX {
            return Err(malformed("an answer of more than 16 MiB"));
        }
        Ok(self.wire.read_buf(&mut self.bytes).await? > 0)
    }
}

/// The head of an answer and where it ends, once all of it is there.
fn parse_head(bytes: &[u8]) -> io::Result<Option<(usize, (Answer, Length))>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let end = match head.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(malformed(&error.to_string())),
    };
    let answer = Answer {
        status: head.code.unwrap_or_default(),
        fields: head
            .headers
            .iter()
            .map(|field| {
                (field.name.to_ascii_lowercase(), String::from_utf8_lossy(field.value).trim().to_owned())
            })
            .collect(),
        body: Bytes::new(),
        meaning: Meaning::Usual,
    };
    let chunked = answer
        .field("transfer-encoding")
        .is_some_and(|coding| coding.to_ascii_lowercase().ends_with("chunked"));
    let length = if matches!(answer.status, 100..=199 | 204 | 304) {
        Length::Known(0)
    } else if chunked {
        Length::Chunks
    } else if let Some(length) = answer.field("content-length") {
        Length::Known(length.parse().map_err(|_| malformed("Content-Length"))?)
    } else {
        Length::UntilTheEnd
    };
    Ok(Some((end, (answer, length))))
}

fn ended(at_once: bool) -> io::Error {
    let why = if at_once { "closed before an answer" } else { "closed before the end of the answer" };
    io::Error::new(io::ErrorKind::UnexpectedEof, why)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP/1.1: {what}"))
}

#[cfg(test)]
#[path = "http1_test.rs"]
mod tests;
