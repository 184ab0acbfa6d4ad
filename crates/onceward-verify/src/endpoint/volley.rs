//! Sends many requests at the same moment: opens every connection, sends every request except its last byte, and
//! then sends all last bytes together.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::http1;
use super::http2;
use super::message::{Answer, Ending, Request, Shot};

/// Connections that are opened at a time: more would overrun the queue of a server that accepts slowly.
const OPENING_MAX: usize = 64;
/// What a server gets to read the heads before it is released upon.
const BREATH: Duration = Duration::from_millis(5);
/// And on top of that for each connection.
const BREATH_EACH: Duration = Duration::from_micros(30);
/// A thread is not started for fewer connections than this.
const CONNECTIONS_PER_THREAD_MIN: usize = 32;
/// First in line; on Linux it counts for a single thread.
const NICE_MIN: i32 = -20;

/// Which HTTP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpVersion {
    /// One request a connection.
    #[default]
    Http1,
    /// Many requests a connection: with prior knowledge unencrypted, negotiated under TLS.
    Http2,
}

/// A request of a volley.
#[derive(Clone, Debug)]
pub(super) struct Aimed {
    pub(super) request: Request,
    /// How long after the first one its last byte leaves.
    pub(super) after: Duration,
    /// How long after its last byte we hang up, answer or not.
    pub(super) hang_up: Option<Duration>,
}

impl From<Request> for Aimed {
    fn from(request: Request) -> Self {
        Self { request, after: Duration::ZERO, hang_up: None }
    }
}

/// Sends all of these and waits for their ends, in the same order. Says by `released` when the first last
/// byte is about to leave.
///
/// Dropping the future hangs up on all of them.
pub(super) async fn fire(
    aimed: Vec<Aimed>,
    version: HttpVersion,
    timeout: Duration,
    released: Option<oneshot::Sender<Instant>>,
) -> io::Result<Vec<Shot>> {
    let mut connections = hold(&aimed, version).await?;
    connections.sort_by_key(|connection| connection.after);
    tokio::time::sleep(BREATH + BREATH_EACH * u32::try_from(connections.len()).unwrap_or(u32::MAX)).await;
    let start = Instant::now();
    if let Some(released) = released {
        // Nobody may be waiting for it any more.
        let _ = released.send(start);
    }
    let mut running = JoinSet::new();
    while let Some(next) = connections.first() {
        sleep_until(start + next.after).await;
        let due = connections.partition_point(|connection| connection.after <= start.elapsed());
        let batch: Vec<Connection> = connections.drain(..due).collect();
        // Reading begins when all of them are written: a thousand tasks that are started in between would
        // spread the last bytes.
        for (connection, at) in release(batch) {
            await_answers(connection, &at, &aimed, timeout, &mut running);
        }
    }
    let mut shots: Vec<Option<Shot>> = vec![None; aimed.len()];
    while let Some(shot) = running.join_next().await {
        let (index, shot): (usize, Shot) = shot.map_err(io::Error::other)?;
        shots[index] = Some(shot);
    }
    Ok(shots.into_iter().map(|shot| shot.expect("each request has its end")).collect())
}

/// Releases all of these, on several threads if there are many: a write takes a few microseconds, and the server
/// thread that it wakes competes for the core.
fn release(batch: Vec<Connection>) -> Vec<(Connection, io::Result<Instant>)> {
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(batch.len() / CONNECTIONS_PER_THREAD_MIN);
    if threads < 2 {
        return batch.into_iter().map(Connection::release).collect();
    }
    let ready = Barrier::new(threads);
    let mut shares: Vec<Vec<Connection>> = std::iter::repeat_with(Vec::new).take(threads).collect();
    for (number, connection) in batch.into_iter().enumerate() {
        shares[number % threads].push(connection);
    }
    let release = |share: Vec<Connection>| {
        hurry();
        ready.wait();
        share.into_iter().map(Connection::release).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = shares.into_iter().map(|share| scope.spawn(|| release(share))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a write does not panic")).collect()
    })
}

/// Lets this thread go before all others that want its core, where that is allowed: the server that is being
/// released upon may be one of them.
fn hurry() {
    let _ = setpriority_process(None, NICE_MIN);
}

/// Sleeps to the moment, not to the next tick of the runtime's clock.
pub(super) async fn sleep_until(moment: Instant) {
    const TICK: Duration = Duration::from_millis(2);
    tokio::time::sleep(moment.saturating_duration_since(Instant::now() + TICK)).await;
    while Instant::now() < moment {
        tokio::task::yield_now().await;
    }
}

/// A connection with the requests, by their place in the volley, that it holds.
struct Connection {
    indices: Vec<usize>,
    after: Duration,
    held: HeldRequests,
}

impl Connection {
    fn release(self) -> (Self, io::Result<Instant>) {
        let at = self.held.release();
        (self, at)
    }
}

enum HeldRequests {
    One(http1::HeldRequest),
    Many(http2::HeldRequests),
}

impl HeldRequests {
    fn release(&self) -> io::Result<Instant> {
        match self {
            Self::One(held) => held.release(),
            Self::Many(held) => held.release(),
        }
    }
}

async fn hold(aimed: &[Aimed], version: HttpVersion) -> io::Result<Vec<Connection>> {
    let mut connections = Vec::new();
    let mut opening: JoinSet<io::Result<Connection>> = JoinSet::new();
    for indices in share(aimed, version) {
        let after = aimed[indices[0]].after;
        let requests: Vec<Request> = indices.iter().map(|index| aimed[*index].request.clone()).collect();
        opening.spawn(async move {
            let held = match version {
                HttpVersion::Http1 => HeldRequests::One(http1::hold(&requests[0]).await?),
                HttpVersion::Http2 => {
                    HeldRequests::Many(http2::hold(&requests.iter().collect::<Vec<_>>()).await?)
                }
            };
            Ok(Connection { indices, after, held })
        });
        if opening.len() >= OPENING_MAX {
            connections.extend(opening.join_next().await.transpose()?.transpose()?);
        }
    }
    while let Some(connection) = opening.join_next().await {
        connections.push(connection??);
    }
    Ok(connections)
}

/// Which requests share a connection: over HTTP/2 those that go to the same place at the same moment.
fn share(aimed: &[Aimed], version: HttpVersion) -> Vec<Vec<usize>> {
    if version == HttpVersion::Http1 {
        return (0..aimed.len()).map(|index| vec![index]).collect();
    }
    let mut shares: Vec<Vec<usize>> = Vec::new();
    for (index, next) in aimed.iter().enumerate() {
        let fits = |share: &&mut Vec<usize>| {
            let first = &aimed[share[0]];
            first.after == next.after
                && first.hang_up.is_none()
                && next.hang_up.is_none()
                && first.request.place.as_str() == next.request.place.as_str()
                && share.len() < http2::streams_max(next.request.body.len().max(first.request.body.len()))
        };
        match shares.iter_mut().rev().find(fits) {
            Some(share) => share.push(index),
            None => shares.push(vec![index]),
        }
    }
    shares
}

type Answering = Pin<Box<dyn Future<Output = io::Result<Answer>> + Send>>;

fn await_answers(
    connection: Connection,
    at: &io::Result<Instant>,
    aimed: &[Aimed],
    timeout: Duration,
    running: &mut JoinSet<(usize, Shot)>,
) {
    let answers: Vec<Answering> = match connection.held {
        HeldRequests::One(held) => vec![Box::pin(held.answer())],
        HeldRequests::Many(held) => {
            held.answers().map(|answer| Box::pin(http2::answer(answer)) as Answering).collect()
        }
    };
    for (index, answer) in connection.indices.into_iter().zip(answers) {
        let (Request { key, label, .. }, hang_up) = (aimed[index].request.clone(), aimed[index].hang_up);
        let sent = at.as_ref().copied().map_err(ToString::to_string);
        running.spawn(async move {
            let (sent, ending) = match sent {
                Ok(sent) => (sent, ending(answer, hang_up, timeout).await),
                Err(why) => (Instant::now(), Ending::Broke(why)),
            };
            (index, Shot { key, label, sent, ended: Instant::now(), ending })
        });
    }
}

async fn ending(answer: Answering, hang_up: Option<Duration>, timeout: Duration) -> Ending {
    // At once means without a look: the shortest of timers takes a millisecond.
    if hang_up == Some(Duration::ZERO) {
        return Ending::HungUp;
    }
    match tokio::time::timeout(hang_up.unwrap_or(timeout), answer).await {
        Ok(Ok(answer)) => Ending::Answered(answer),
        Ok(Err(error)) => Ending::Broke(error.to_string()),
        Err(_) if hang_up.is_some() => Ending::HungUp,
        Err(_) => Ending::TimedOut,
    }
}
