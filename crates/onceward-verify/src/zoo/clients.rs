//! Clients of the zoo: some retry as they should, each of the others makes one mistake. They prove that the verifier of
//! clients catches mistakes and raises no false alarms.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::client_check::{INTENT_VARIABLE, URL_VARIABLE};
use crate::endpoint::http_date_unix_s;

/// Where a key comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    /// From the name of the intent.
    Name,
    /// From a file of the intent, written before the first try.
    Journal,
    /// Random, for each run.
    Run,
    /// Random, for each try.
    Try,
    /// Always the same.
    Constant,
    /// There is none.
    None,
}

/// How a client retries.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a habit of its own")]
struct ClientHabits {
    key: Key,
    tries_max: u32,
    pause: Duration,
    grows: bool,
    has_jitter: bool,
    honours_retry_after: bool,
    reads_dates: bool,
    retries_refusals: bool,
    has_a_timestamp: bool,
}

const RIGHT: ClientHabits = ClientHabits {
    key: Key::Name,
    tries_max: 4,
    pause: Duration::from_millis(150),
    grows: true,
    has_jitter: true,
    honours_retry_after: true,
    reads_dates: true,
    retries_refusals: false,
    has_a_timestamp: false,
};

/// One client of the zoo.
#[derive(Clone, Copy)]
pub struct ZooClient {
    /// The name.
    pub name: &'static str,
    /// Its flaw; for a right one, how it does it.
    pub what: &'static str,
    /// The scenario that must be violated; none for a right one.
    pub caught_by: Option<&'static str>,
    habits: ClientHabits,
}

const fn broken(
    name: &'static str,
    what: &'static str,
    caught_by: &'static str,
    habits: ClientHabits,
) -> ZooClient {
    ZooClient { name, what, caught_by: Some(caught_by), habits }
}

const fn right(name: &'static str, what: &'static str, habits: ClientHabits) -> ZooClient {
    ZooClient { name, what, caught_by: None, habits }
}

/// All of them.
pub fn all() -> &'static [ZooClient] {
    &ALL
}

static ALL: [ZooClient; 15] = [
    broken("no-key", "sends no key", "same-key", ClientHabits { key: Key::None, ..RIGHT }),
    broken("key-per-try", "makes a key for each try", "same-key", ClientHabits { key: Key::Try, ..RIGHT }),
    broken(
        "key-per-run",
        "makes a key for each run",
        "survives-kill",
        ClientHabits { key: Key::Run, ..RIGHT },
    ),
    broken(
        "one-key",
        "has one key for everything",
        "key-per-intent",
        ClientHabits { key: Key::Constant, ..RIGHT },
    ),
    broken(
        "timestamp-in-body",
        "writes the time of the try into the body",
        "same-bytes",
        ClientHabits { has_a_timestamp: true, ..RIGHT },
    ),
    broken(
        "no-pauses",
        "comes again at once",
        "back-off",
        ClientHabits { pause: Duration::ZERO, has_jitter: false, ..RIGHT },
    ),
    broken("no-jitter", "pauses without jitter", "back-off", ClientHabits { has_jitter: false, ..RIGHT }),
    broken("no-growth", "pauses for the same time", "back-off", ClientHabits { grows: false, ..RIGHT }),
    broken(
        "hurries",
        "knows no Retry-After",
        "retry-after",
        ClientHabits { honours_retry_after: false, ..RIGHT },
    ),
    broken(
        "knows-only-seconds",
        "passes over a date in Retry-After",
        "retry-after",
        ClientHabits { reads_dates: false, ..RIGHT },
    ),
    broken(
        "retries-refusals",
        "tries again after a refusal",
        "final-answers",
        ClientHabits { retries_refusals: true, ..RIGHT },
    ),
    broken(
        "never-stops",
        "never gives up",
        "bounded-tries",
        ClientHabits { tries_max: u32::MAX, pause: Duration::from_millis(10), ..RIGHT },
    ),
    right("by-name", "the key is the name of the intent", RIGHT),
    right(
        "journal",
        "the key is in a file before the first try",
        ClientHabits { key: Key::Journal, ..RIGHT },
    ),
    right("one-try", "never tries again by itself", ClientHabits { tries_max: 1, ..RIGHT }),
];

/// The one of this name.
pub fn named(name: &str) -> Option<&'static ZooClient> {
    ALL.iter().find(|client| client.name == name)
}

/// No pause is longer.
const PAUSE_MAX: Duration = Duration::from_millis(1200);
/// What is waited for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Does what the environment asks for, as this client does it. Its files are in this folder.
pub fn call(client: &ZooClient, folder: &Path) -> io::Result<()> {
    let variable =
        |name: &str| std::env::var(name).map_err(|_| io::Error::other(format!("{name} is not set")));
    let (url, intent) = (variable(URL_VARIABLE)?, variable(INTENT_VARIABLE)?);
    let habits = client.habits;
    let run_key = key_of_the_run(habits.key, &intent, folder)?;
    let mut pause = habits.pause;
    for tries in 1..=habits.tries_max {
        let key = if habits.key == Key::Try { Some(random_text()?) } else { run_key.clone() };
        let at =
            if habits.has_a_timestamp { format!(r#","at":"{}""#, random_text()?) } else { String::new() };
        let body = format!(r#"{{"intent":"{intent}","amount":12{at}}}"#);
        let answer = send(&url, key.as_deref(), &body).ok();
        let status = answer.as_ref().map(|answer| answer.status);
        let is_refusal =
            status.is_some_and(|status| (400..500).contains(&status) && ![408, 409, 429].contains(&status));
        if status.is_some_and(|status| status < 400) {
            return Ok(());
        }
        if is_refusal && !habits.retries_refusals || tries == habits.tries_max {
            break;
        }
        let asked = answer.and_then(|answer| answer.retry_after).filter(|_| habits.honours_retry_after);
        let asked = asked.and_then(|text| wait(&text, habits.reads_dates));
        std::thread::sleep(asked.unwrap_or_else(|| jittered(pause, habits.has_jitter)));
        if habits.grows {
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
    Err(io::Error::other("gave up"))
}

fn key_of_the_run(key: Key, intent: &str, folder: &Path) -> io::Result<Option<String>> {
    Ok(match key {
        Key::None => None,
        Key::Constant => Some("constant".to_owned()),
        Key::Name => Some(format!("intent-{intent}")),
        Key::Run | Key::Try => Some(random_text()?),
        Key::Journal => {
            let path = folder.join(intent);
            if !path.exists() {
                std::fs::write(&path, random_text()?)?;
            }
            Some(std::fs::read_to_string(path)?)
        }
    })
}

fn random_text() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

/// From a half to all of it.
fn jittered(pause: Duration, has_jitter: bool) -> Duration {
    let mut byte = [0; 4];
    if !has_jitter || getrandom::fill(&mut byte).is_err() {
        return pause;
    }
    pause / 2 + (pause / 2).mul_f64(f64::from(u32::from_be_bytes(byte)) / f64::from(u32::MAX))
}

/// How long `Retry-After` asks to wait, in seconds or until a date.
fn wait(text: &str, reads_dates: bool) -> Option<Duration> {
    let date = || http_date_unix_s(text).filter(|_| reads_dates).map(Duration::from_secs);
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = text.parse().ok().map(Duration::from_secs);
    seconds.or_else(|| Some(date()?.saturating_sub(now())))
}

struct Got {
    status: u16,
    retry_after: Option<String>,
}

/// Sends one request. An answer that ends too early is none.
fn send(url: &str, key: Option<&str>, body: &str) -> io::Result<Got> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let (authority, path) =
        url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).ok_or_else(|| bad("no URL"))?;
    let address: SocketAddr = authority.parse().map_err(|_| bad("no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
    let length = body.len();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n{key}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, rest) = answer.split_once("\r\n\r\n").ok_or_else(|| bad("half a head"))?;
    let field = |wanted: &str| {
        head.lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
    };
    let whole: usize = field("content-length").and_then(|(_, value)| value.parse().ok()).unwrap_or_default();
    if rest.len() < whole {
        return Err(bad("half a body"));
    }
    Ok(Got {
        status: head.split(' ').nth(1).and_then(|text| text.parse().ok()).ok_or_else(|| bad("no status"))?,
        retry_after: field("retry-after").map(|(_, value)| value.to_owned()),
    })
}
