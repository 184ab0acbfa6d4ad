//! A connection to one server: opened, checked, used by all callers at once, replaced when it is lost.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::Result;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, RedisError, RedisResult, ServerErrorKind, Value, cmd,
};

use super::errors::{self, CallEffect};
use super::scripts::{LoadedScripts, Script};
use super::sentinel;
use super::server_check::{self, Durability, ServerState};

/// How long opening a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// One server.
pub(super) struct Node {
    /// As errors name it.
    pub(super) server: String,
    endpoint: Endpoint,
    call_timeout: Duration,
    live: Mutex<Option<Live>>,
    /// Held while a connection is being opened, so that one is enough for all that wait.
    opening: tokio::sync::Mutex<()>,
}

/// Where a server is.
pub(super) enum Endpoint {
    /// At one address.
    Fixed(Client),
    /// Wherever the sentinels say that the primary of this name is.
    Sentinels { sentinels: Vec<Client>, name: String, login: ConnectionInfo },
}

/// A connection that has been checked.
#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    scripts: LoadedScripts,
    /// Which of the connections of this process it is.
    number: u64,
}

/// What the servers of a store have said at their last connection.
#[derive(Debug, Default)]
pub(super) struct SaidDurability(Mutex<BTreeMap<String, Durability>>);

impl SaidDurability {
    /// Notes what a server says now. That it says less than before is worth a line in the log.
    fn note(&self, server: &str, durability: &Durability) {
        let before = lock(&self.0).insert(server.to_owned(), durability.clone());
        if before == Some(Durability::Always) && *durability != Durability::Always {
            tracing::error!(server, "the configuration of the server has changed: {durability}");
        }
    }

    /// The least that any server has said.
    pub(super) fn least(&self) -> Durability {
        let said = lock(&self.0);
        let least = said.values().find(|durability| **durability != Durability::Always);
        least.or_else(|| said.values().next()).cloned().unwrap_or(Durability::NotSaid)
    }
}

/// Why a call did not succeed.
pub(super) enum CallError {
    /// There is no connection; nothing was sent.
    Unconnected(onceward::Error),
    /// The call failed.
    Failed(RedisError),
}

impl CallError {
    /// What the server answered, if it did.
    pub(super) fn answer(&self) -> Option<ServerErrorKind> {
        match self {
            Self::Failed(error) => match error.kind() {
                redis::ErrorKind::Server(kind) => Some(kind),
                _ => None,
            },
            Self::Unconnected(_) => None,
        }
    }

    pub(super) fn into_error(self, server: &str, effect: CallEffect) -> onceward::Error {
        match self {
            Self::Unconnected(error) => error,
            Self::Failed(error) => errors::failed(server, effect, error),
        }
    }
}

impl Node {
    pub(super) fn new(server: String, endpoint: Endpoint, call_timeout: Duration) -> Self {
        Self {
            server,
            endpoint,
            call_timeout,
            live: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        }
    }

    /// Runs a script, which `fill` gives its keys and arguments.
    pub(super) async fn call(
        &self,
        said: &SaidDurability,
        script: Script,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Value, CallError> {
        for last_try in [false, true] {
            let mut live = self.live(said).await.map_err(CallError::Unconnected)?;
            let mut command = cmd("EVALSHA");
            command.arg(live.scripts.name(script));
            fill(&mut command);
            match command.query_async::<Value>(&mut live.connection).await {
                Ok(value) => {
                    // A script runs on a replica too, and its writes are refused one by one.
                    if errors::has_read_only(&value) {
                        self.discard(live.number);
                    }
                    return Ok(value);
                }
                Err(error) => {
                    let forgotten = is_kind(&error, ServerErrorKind::NoScript);
                    // A replica that was the primary a moment ago keeps its connections.
                    if forgotten || !is_answer(&error) || is_kind(&error, ServerErrorKind::ReadOnly) {
                        self.discard(live.number);
                    }
                    if last_try || !forgotten {
                        return Err(CallError::Failed(error));
                    }
                }
            }
        }
        unreachable!("the last try returns")
    }

    /// Sends a command that only reads, or that may be sent twice.
    pub(super) async fn ask(&self, said: &SaidDurability, command: &Cmd) -> Result<Value> {
        let mut live = self.live(said).await?;
        command.query_async(&mut live.connection).await.map_err(|error| {
            self.discard(live.number);
            errors::failed(&self.server, CallEffect::Reads, error)
        })
    }

    /// Opens a connection if there is none, and returns what the server says about itself.
    pub(super) async fn greet(&self) -> Result<ServerState> {
        let mut connection = self.open().await?;
        server_check::check(&self.server, &mut connection).await
    }

    /// A connection for signals, which cannot be shared.
    pub(super) async fn subscribe(&self, channel: &str) -> RedisResult<redis::aio::PubSub> {
        let client = self.client().await.map_err(std::io::Error::other)?;
        let mut signals = client.get_async_pubsub().await?;
        signals.subscribe(channel).await?;
        Ok(signals)
    }

    async fn live(&self, said: &SaidDurability) -> Result<Live> {
        if let Some(live) = &*lock(&self.live) {
            return Ok(live.clone());
        }
        let _opening = self.opening.lock().await;
        if let Some(live) = &*lock(&self.live) {
            return Ok(live.clone());
        }
        let mut connection = self.open().await?;
        let state = server_check::check(&self.server, &mut connection).await?;
        said.note(&self.server, &state.durability);
        let scripts = LoadedScripts::load(&mut connection)
            .await
            .map_err(|error| errors::failed(&self.server, CallEffect::Reads, error))?;
        let live = Live { connection, scripts, number: next_number() };
        *lock(&self.live) = Some(live.clone());
        Ok(live)
    }

    async fn open(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX.min(self.call_timeout)))
            .set_response_timeout(Some(self.call_timeout));
        let client = self.client().await?;
        let opened = client.get_multiplexed_async_connection_with_config(&config).await;
        opened.map_err(|error| errors::unconnected(&self.server, error))
    }

    async fn client(&self) -> Result<Client> {
        match &self.endpoint {
            Endpoint::Fixed(client) => Ok(client.clone()),
            Endpoint::Sentinels { sentinels, name, login } => sentinel::primary(sentinels, name, login).await,
        }
    }

    /// Forgets a connection, unless it has been replaced already.
    fn discard(&self, number: u64) {
        let mut live = lock(&self.live);
        if live.as_ref().is_some_and(|live| live.number == number) {
            *live = None;
        }
    }
}

fn is_kind(error: &RedisError, kind: ServerErrorKind) -> bool {
    error.kind() == redis::ErrorKind::Server(kind)
}

/// Whether the server answered with this error, so that the connection is sound.
fn is_answer(error: &RedisError) -> bool {
    error.code().is_some()
}

fn next_number() -> u64 {
    static NUMBERS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NUMBERS.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Nothing that can panic happens under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
