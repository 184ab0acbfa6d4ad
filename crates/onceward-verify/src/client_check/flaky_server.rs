//! A server that follows a script for each run of a client: answers, answers that say when to come again, connections that
//! are reset or cut off in mid-answer, and a port that is closed for a while.

use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::http_try::{Sent, Try};
use crate::endpoint::http_date_written;

/// What is done with a try.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// An answer with these fields.
    Answer(u16, &'static [(&'static str, &'static str)], &'static str),
    /// An answer with the date in `Retry-After` that is this many seconds after its own `Date`.
    ComeAgainAt(u16, u64),
    /// The connection is reset before the request is read.
    Reset,
    /// Half an answer, and then the connection is closed.
    CutOff,
    /// 503, and then the port is closed for this long.
    CloseFor(Duration),
    /// No answer at all.
    Hang,
}

/// The answer to what is done.
pub(super) const DONE: Step =
    Step::Answer(201, &[("Content-Type", "application/json")], r#"{"id":"ch_1","status":"succeeded"}"#);

/// The servers of all runs: each run has a port of its own, whatever path its client asks for.
pub(super) struct FlakyServer {
    runs: Mutex<HashMap<String, RunServer>>,
    name: String,
}

/// The server of one run.
struct RunServer {
    port: u16,
    state: Arc<RunState>,
    /// Ends with it.
    _task: JoinSet<()>,
}

struct RunState {
    run: Mutex<Run>,
    /// A try has begun.
    changed: Notify,
    /// The port is to be closed for this long.
    close: mpsc::UnboundedSender<Duration>,
}

/// What one run meets, and what it did.
struct Run {
    /// The last one is repeated.
    script: Vec<Step>,
    tries: Vec<Try>,
}

/// A request that is larger is not read.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Somebody else may have the port for a moment.
const BIND_AGAIN: Duration = Duration::from_millis(5);

impl FlakyServer {
    pub(super) fn new() -> io::Result<Self> {
        let mut name = [0; 4];
        getrandom::fill(&mut name).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self { runs: Mutex::default(), name: format!("{:08x}", u32::from_be_bytes(name)) })
    }

    /// What names this check in its intents.
    pub(super) fn run_name(&self) -> String {
        self.name.clone()
    }

    /// Prepares a run, or the same run once more. Gives the URL for it.
    pub(super) async fn expect(&self, name: &str, script: Vec<Step>) -> io::Result<String> {
        let url = |port: u16| format!("http://127.0.0.1:{port}/charges");
        let run = Run { script, tries: Vec::new() };
        if let Some(known) = self.runs().get(name) {
            *known.state.run() = run;
            return Ok(url(known.port));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (close, closing) = mpsc::unbounded_channel();
        let state = Arc::new(RunState { run: Mutex::new(run), changed: Notify::new(), close });
        let mut task = JoinSet::new();
        task.spawn(listen(listener, port, state.clone(), closing));
        self.runs().insert(name.to_owned(), RunServer { port, state, _task: task });
        Ok(url(port))
    }

    /// What a run has done so far.
    pub(super) fn tries(&self, name: &str) -> Vec<Try> {
        self.runs().get(name).map(|run| run.state.run().tries.clone()).unwrap_or_default()
    }

    /// Waits until a run has tried this often.
    pub(super) fn tried(&self, name: &str, count: usize) -> impl Future<Output = ()> + Send + 'static {
        let state = self.runs().get(name).map(|run| run.state.clone()).expect("it is expected");
        async move {
            loop {
                let changed = state.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if state.run().tries.len() >= count {
                    return;
                }
                changed.await;
            }
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<String, RunServer>> {
        self.runs.lock().expect("nobody panics with it in hand")
    }
}

impl RunState {
    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().expect("nobody panics with it in hand")
    }

    /// What a try meets, and its number.
    fn next_step(&self, sent: Sent, at: Instant, now: Duration) -> (Step, usize) {
        let mut run = self.run();
        let index = run.tries.len();
        let step = run.script[index.min(run.script.len() - 1)].clone();
        // Where the connection is reset nobody is to have read it.
        let sent = (!matches!(step, Step::Reset)).then_some(sent);
        let come_again_at = match step {
            Step::ComeAgainAt(_, seconds) => {
                Some(at + Duration::from_secs(now.as_secs() + seconds).saturating_sub(now))
            }
            _ => None,
        };
        run.tries.push(Try { at, ended: at, sent, got: got(&step), status: status(&step), come_again_at });
        (step, index)
    }
}

async fn listen(
    listener: TcpListener,
    port: u16,
    state: Arc<RunState>,
    mut closing: mpsc::UnboundedReceiver<Duration>,
) {
    let mut listener = listener;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(time) = closing.recv() => {
                drop(listener);
                tokio::time::sleep(time).await;
                listener = loop {
                    match TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await {
                        Ok(listener) => break listener,
                        Err(_) => tokio::time::sleep(BIND_AGAIN).await,
                    }
                };
            }
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let state = state.clone();
                    connections.spawn(async move { let _ = serve(stream, &state).await; });
                }
                while connections.try_join_next().is_some() {}
            }
        }
    }
}

/// Serves one request and closes the connection.
async fn serve(mut stream: TcpStream, state: &RunState) -> io::Result<()> {
    let Some(sent) = read(&mut stream).await? else { return Ok(()) };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (step, index) = state.next_step(sent, Instant::now(), now);
    state.changed.notify_waiters();
    let written = run_step(&mut stream, &step, state, now).await;
    if let Some(this) = state.run().tries.get_mut(index) {
        this.ended = Instant::now();
    }
    written
}

/// `now` is since 1970.
async fn run_step(stream: &mut TcpStream, step: &Step, state: &RunState, now: Duration) -> io::Result<()> {
    match step {
        Step::ComeAgainAt(status, seconds) => {
            let [date, again] = [0, *seconds].map(|seconds| http_date_written(now.as_secs() + seconds));
            let fields = [("Date", date.as_str()), ("Retry-After", again.as_str())];
            stream.write_all(&answer(*status, &fields, "{}")).await?;
        }
        Step::Answer(status, fields, body) => stream.write_all(&answer(*status, fields, body)).await?,
        Step::Reset => return stream.set_zero_linger(),
        Step::CutOff => {
            stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n{\"id\":").await?;
        }
        Step::CloseFor(time) => {
            // It is received for as long as the run is served.
            let _ = state.close.send(*time);
            stream.write_all(&answer(503, &[], "closing")).await?;
        }
        Step::Hang => {
            let mut rest = [0; 64];
            while stream.read(&mut rest).await? > 0 {}
        }
    }
    stream.shutdown().await
}

fn status(step: &Step) -> Option<u16> {
    match step {
        Step::Answer(status, ..) | Step::ComeAgainAt(status, _) => Some(*status),
        Step::CloseFor(_) => Some(503),
        Step::Reset | Step::CutOff | Step::Hang => None,
    }
}

fn got(step: &Step) -> String {
    match step {
        Step::Answer(status, fields, _) => {
            fields.iter().fold(status.to_string(), |text, (name, value)| format!("{text}, {name}: {value}"))
        }
        Step::ComeAgainAt(status, seconds) => {
            format!("{status}, Retry-After: a date {seconds} s after its Date")
        }
        Step::Reset => "reset".to_owned(),
        Step::CutOff => "cut off in mid-answer".to_owned(),
        Step::CloseFor(time) => format!("503, then nothing listens for {time:?}"),
        Step::Hang => "no answer".to_owned(),
    }
}

fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut head =
        format!("HTTP/1.1 {status} Flaky\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    for (name, value) in fields {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    format!("{head}\r\n{body}").into_bytes()
}

/// Reads a whole request; none if the client hung up before it was there.
async fn read(stream: &mut TcpStream) -> io::Result<Option<Sent>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(sent) = parse(&bytes)? {
            return Ok(Some(sent));
        }
        if bytes.windows(12).any(|part| part.eq_ignore_ascii_case(b"100-continue"))
            && bytes.ends_with(b"\r\n\r\n")
        {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        if stream.read_buf(&mut bytes).await? == 0 || bytes.len() > BYTES_MAX {
            return Ok(None);
        }
    }
}

/// The request, once all of it is there.
fn parse(bytes: &[u8]) -> io::Result<Option<Sent>> {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut head = httparse::Request::new(&mut headers);
    let wrong = |error: httparse::Error| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let httparse::Status::Complete(length) = head.parse(bytes).map_err(wrong)? else { return Ok(None) };
    let fields: Vec<(String, String)> = head
        .headers
        .iter()
        .map(|field| (field.name.to_ascii_lowercase(), String::from_utf8_lossy(field.value).into_owned()))
        .collect();
    let field = |name: &str| fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    let rest = &bytes[length..];
    let body = if field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        unchunked(rest)
    } else {
        let length: usize =
            field("content-length").and_then(|text| text.trim().parse().ok()).unwrap_or_default();
        rest.get(..length).map(Bytes::copy_from_slice)
    };
    Ok(body.map(|body| Sent {
        method: head.method.unwrap_or_default().to_owned(),
        target: head.path.unwrap_or_default().to_owned(),
        fields,
        body,
    }))
}

/// The body that was sent in chunks, once the last one is there.
fn unchunked(mut rest: &[u8]) -> Option<Bytes> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(body.into());
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

#[cfg(test)]
#[path = "flaky_server_test.rs"]
mod tests;
