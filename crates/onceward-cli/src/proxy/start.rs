//! Starts a gateway from its settings, and stops it on a signal.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::Uri;
use onceward::{Id, Onceward, Sweep};
use onceward_http::Metrics;
use onceward_http::admin::{Admin, Readiness};
use onceward_http::webhook::{Arrivals, Deliveries, DeliveryCounts, HEAD_BYTES_MAX};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, oneshot, watch};

use super::callers::Callers;
use super::event_delivery;
use super::forward::Upstream;
use super::known_identities::{self, NewIdentity};
use super::known_secrets::{self, NewSecret};
use super::limits::{self, period};
use super::load_metrics;
use super::reload;
use super::route_table::{GatewayState, RouteTable};
use super::secret;
use super::secrets_in_use;
use super::serve::{Gateway, serve};
use super::tls::{ClientTls, TlsFiles};
use super::worker_threads::{self, WorkerThreads};
use crate::address::{ListenAddress, with_scheme};
use crate::admin;
use crate::config::{Period, Routes, ScopeSource, Settings};
use crate::listener::ConnectionSlots;
use crate::measured_store::{self, StoreMetrics};
use crate::output::announce;

const LISTEN: &str = "127.0.0.1:8080";
const ADMIN: &str = "127.0.0.1:8081";
const STORE: &str = "embedded:./onceward-data";
const DRAIN_DELAY: Duration = Duration::from_secs(5);
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Runs the gateway until it is told to stop.
pub async fn run(
    config: Option<PathBuf>,
    given: Settings,
    new_secret: NewSecret,
    new_identity: NewIdentity,
) -> Result<(), String> {
    let (file, routes) = match &config {
        Some(path) => Settings::read(path)?,
        None => (Settings::default(), Settings::built_in_routes()),
    };
    let settings = given.over(file.clone());
    let store_url = settings.store.as_deref().unwrap_or(STORE);
    if let Some(threads) = settings.threads {
        worker_threads::set_count(threads.get())?;
    }
    let upstream = upstream(&settings)?;
    let callers = Callers::new(settings.jwt_key.as_deref())?;
    let admission = limits::admission(&settings)?;
    let tls = tls(&settings)?;

    let threads = WorkerThreads::open().map_err(|error| format!("cannot start: {error}"))?;
    // Listen before the store is opened: a second start by mistake fails without touching the store.
    let listener = bind("listen", settings.listen, LISTEN)?;
    let admin_listener = bind("admin", settings.admin, ADMIN)?;
    let auth =
        admin::auth(local(&admin_listener)?, settings.admin_token.as_deref(), settings.app_token.as_deref())?;

    let (mut builder, store_metrics) =
        measured_store::open(store_url).await.map_err(|error| format!("store: {error}"))?;
    if store_url.starts_with("memory:") {
        tracing::warn!("receipts are kept in memory: after a restart they are lost, and a retry runs again");
        builder = builder.accept_volatile();
    }
    let onceward = builder.build().map_err(|error| format!("store: {error}"))?;
    let given_secret = std::env::var(secret::VARIABLE).ok();
    let secrets = secret::for_store(store_url, given_secret.as_deref(), &onceward).await?;
    known_secrets::check(&onceward, &secrets, new_secret).await?;
    secrets_in_use::exchange(&onceward, &secrets, known_identities::kept(&routes), new_secret).await?;
    if routes.each().any(|route| route.scope.contains(&ScopeSource::Auto)) {
        tracing::info!(
            "callers are told apart by their credentials (scope = \"auto\"): a token that is refreshed between two tries \
             makes the retry another caller's; set scope = \"jwt:sub\" where tokens are refreshed"
        );
    }

    let state = GatewayState {
        onceward: onceward.clone(),
        secrets: Arc::new(secrets),
        metrics: Arc::new(Metrics::new()),
        admission: Arc::new(admission),
        upstream: Arc::new(upstream),
        callers,
        path_rules: limits::path_rules(&settings),
        underscore_fields: settings.underscore_fields.unwrap_or(false),
        arrivals: Arrivals::new(),
        publish: settings.publish.unwrap_or(true),
    };
    let former = known_identities::exchange(&onceward, &routes, state.path_rules, new_identity).await?;
    let table = ArcSwap::from_pointee(RouteTable::new(&state, &routes, former)?);
    let bounds = limits::connection_limits(&settings);
    let trusted_proxies = settings.trusted_proxies.clone().unwrap_or_default();
    let slots = ConnectionSlots::new(limits::slot_limits(&settings, bounds.timeouts));
    let gateway =
        Arc::new(Gateway { state, table, rebuilding: Mutex::default(), tls, bounds, slots, trusted_proxies });
    gateway.check(&routes)?;

    let sweep_every = period(settings.sweep_every, SWEEP_EVERY);
    let sweeper = onceward.clone();
    let sweep = Sweep::default().with_unknown_after(settings.unknown_after.map(|Period(time)| time));
    tokio::spawn(async move { sweeper.sweep_forever(sweep, sweep_every).await });
    tokio::spawn(known_identities::keep_known(gateway.clone()));
    // Signals are caught before the addresses are announced.
    let caught = |kind| signal(kind).map_err(|error| format!("signals cannot be received: {error}"));
    let hangup = caught(SignalKind::hangup())?;
    let stop_signals = [caught(SignalKind::terminate())?, caught(SignalKind::interrupt())?];
    if let Some(tls) = &gateway.tls {
        tokio::spawn(reload::watch_certificates(tls.clone(), caught(SignalKind::hangup())?));
    }
    tokio::spawn(reload::watch_file(gateway.clone(), config.map(|path| (path, file)), hangup));

    let readiness = Arc::new(Readiness::new().with_upstream(gateway.state.upstream.address()));
    let deliveries = Deliveries::new(onceward.clone(), gateway.state.arrivals.clone());
    let operators = operators(onceward, &gateway, readiness.clone(), store_metrics, deliveries.counts());
    let (stop_deliveries, deliveries_stopped) = oneshot::channel::<()>();
    let stopped = async { drop(deliveries_stopped.await) };
    let delivering = tokio::spawn(event_delivery::run(gateway.clone(), deliveries, stopped));
    let letters = admin::dead_letters::routes(&operators, store_url);
    let operators = admin::router(&operators.with_operator_routes(letters), auth);
    announce(&format!("admin on http://{}", local(&admin_listener)?));
    let (finish, finished) = watch::channel(Stop::No);
    let finished = async { _ = until_set(finished).await };
    let admin = tokio::spawn(admin::serve(admin_listener, operators, finished));

    let (stop, stopped) = watch::channel(Stop::No);
    tokio::spawn(wait_for_signals(stop_signals, stop));
    let scheme = if gateway.tls.is_some() { "https" } else { "http" };
    announce(&format!("listening on {scheme}://{}", local(&listener)?));
    let drain_delay = period(settings.drain_delay, DRAIN_DELAY);
    let drain = async {
        let stop = until_set(stopped).await;
        readiness.drain();
        // Load balancers notice with a delay, and still send requests meanwhile.
        if stop == Stop::Drain {
            tokio::time::sleep(drain_delay).await;
        }
    };
    serve(gateway.clone(), &threads, listener, drain).await;
    drop(stop_deliveries);
    // What is not delivered by then is delivered by the next process.
    let _ = tokio::time::timeout(gateway.bounds.drain_timeout, delivering).await;
    finish_in_flight(&gateway).await;
    // The admin listener stops last, so that monitors can read the final metrics.
    let _ = finish.send(Stop::Now);
    let _ = admin.await;
    Ok(())
}

/// What operators are served: health, metrics, the receipts API.
fn operators(
    onceward: Onceward,
    gateway: &Arc<Gateway>,
    readiness: Arc<Readiness>,
    store_metrics: Arc<StoreMetrics>,
    deliveries: Arc<DeliveryCounts>,
) -> Admin {
    Admin::new(onceward)
        .with_readiness(readiness)
        .with_layer_metrics(gateway.state.metrics.clone())
        .with_scopes_of({
            let gateway = gateway.clone();
            move |request| gateway.table.load().scopes_of(&gateway.state, request)
        })
        .with_metrics(move |out| store_metrics.write(out))
        .with_metrics(move |out| deliveries.write_metrics(out))
        .with_metrics({
            let gateway = gateway.clone();
            move |out| {
                write_metrics(&gateway.slots, out);
                load_metrics::write(&gateway, out);
            }
        })
}

fn write_metrics(slots: &ConnectionSlots, out: &mut String) {
    slots.write_metrics(out);
    let jumps = onceward_stores::clock_jumps();
    let _ = writeln!(out, "# TYPE onceward_clock_jumps_total counter\nonceward_clock_jumps_total {jumps}");
}

impl Gateway {
    /// Returns whether these routes can be served here.
    pub fn check(&self, routes: &Routes) -> Result<(), String> {
        let certificates = self.tls.as_ref().is_some_and(|tls| tls.asks_for_certificates());
        for former in self.table.load().former() {
            for source in former.scope_sources()? {
                self.state.callers.check(&source, certificates).map_err(|error| {
                    format!(
                        "{error}. Receipts in the store have this scope: without it a retry would run again. To give them \
                         up, start once with --accept-new-identity"
                    )
                })?;
            }
        }
        let bytes_max = self.state.onceward.body_bytes_max();
        for route in routes.each() {
            let bytes = route.route.response_bytes_max();
            if bytes > bytes_max {
                return Err(format!(
                    "{}: response_bytes_max: {bytes} bytes are more than the {bytes_max} that this store keeps of an answer",
                    route.pattern
                ));
            }
            let stores = route.route.webhook().is_some_and(|receiver| receiver.store_first().is_some());
            let (bytes, input_max) = (route.route.request_bytes_max(), self.state.onceward.input_bytes_max());
            if stores && bytes.saturating_add(HEAD_BYTES_MAX) > input_max {
                return Err(format!(
                    "{}: request_bytes_max: events of {bytes} bytes do not fit into a receipt; this store keeps {input_max}, \
                     of which {HEAD_BYTES_MAX} are for the fields of a request",
                    route.pattern
                ));
            }
            for source in &route.scope {
                let checked = self.state.callers.check(source, certificates);
                checked.map_err(|error| format!("{}: {error}", route.pattern))?;
            }
        }
        Ok(())
    }
}

fn upstream(settings: &Settings) -> Result<Upstream, String> {
    let upstream = settings.upstream.as_deref().ok_or(
        "there is no upstream; name the service behind the gateway, as in --upstream http://127.0.0.1:3000",
    )?;
    let upstream: Uri =
        with_scheme(upstream).parse().map_err(|error| format!("upstream: `{upstream}`: {error}"))?;
    Upstream::new(&upstream).map_err(|error| format!("upstream: {error}"))
}

fn tls(settings: &Settings) -> Result<Option<Arc<ClientTls>>, String> {
    match (&settings.tls_cert, &settings.tls_key) {
        (Some(certificate), Some(key)) => ClientTls::new(TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authorities: settings.tls_client_ca.clone(),
        })
        .map(|tls| Some(Arc::new(tls))),
        (None, None) if settings.tls_client_ca.is_some() => {
            Err("tls_client_ca: client certificates need TLS; set tls_cert and tls_key too".into())
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err("tls_key: it is missing; tls_cert needs its private key".into()),
        (None, Some(_)) => Err("tls_cert: it is missing; tls_key needs its certificate".into()),
    }
}

fn bind(name: &str, address: Option<ListenAddress>, default: &str) -> Result<TcpListener, String> {
    let address = address.unwrap_or_else(|| default.parse().expect("the default is valid"));
    listen(address.0).map_err(|error| {
        format!("{name}: cannot listen on {address}: {error}; choose another address with --{name}")
    })
}

/// Connections that the operating system completes before they are accepted; it lowers this to its own limit
/// (`net.core.somaxconn`). A client that finds the queue full tries again only after a second, so a burst of connections must
/// not fill it.
const ACCEPT_QUEUE: u32 = 4096;

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Without it an address stays in use for a minute after the process that had it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_QUEUE)
}

fn local(listener: &TcpListener) -> Result<SocketAddr, String> {
    listener.local_addr().map_err(|error| error.to_string())
}

/// How the process was told to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stop {
    /// It was not.
    #[default]
    No,
    /// By SIGTERM: after the delay for load balancers.
    Drain,
    /// By SIGINT, from a terminal: new connections are not accepted from now on.
    Now,
}

/// Resolves when the process was told to stop.
async fn until_set(mut stopped: watch::Receiver<Stop>) -> Stop {
    let told = stopped.wait_for(|stop| *stop != Stop::No).await.map(|stop| *stop);
    match told {
        Ok(stop) => stop,
        // Without a sender it is never told.
        Err(_) => std::future::pending().await,
    }
}

async fn wait_for_signals([mut terminate, mut interrupt]: [Signal; 2], stop: watch::Sender<Stop>) {
    let mut asked = async || {
        tokio::select! {
            _ = terminate.recv() => Stop::Drain,
            _ = interrupt.recv() => Stop::Now,
        }
    };
    let asked_first = asked().await;
    tracing::info!("stopping: finishing requests in flight");
    let _ = stop.send(asked_first);
    // A second signal means: do not wait.
    asked().await;
    std::process::exit(130);
}

/// Waits for requests whose client has disconnected, which run on without a connection, and for outcomes that the store
/// did not take yet.
async fn finish_in_flight(gateway: &Gateway) {
    const POLL_INTERVAL: Duration = Duration::from_millis(20);
    let waited = tokio::time::timeout(gateway.bounds.drain_timeout, async {
        while gateway.state.metrics.in_flight() > 0 || !gateway.state.onceward.unwritten_outcomes().is_empty()
        {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    });
    if waited.await.is_err() {
        let in_flight = gateway.state.metrics.in_flight();
        tracing::warn!(in_flight, "some requests did not finish in time; their outcomes will be unknown");
        list_unwritten(&gateway.state.onceward.unwritten_outcomes());
    }
}

/// Outcomes in the log at shutdown, at most; all are counted.
const UNWRITTEN_LISTED_MAX: usize = 1_000;

/// Lists what is lost with this process: an operator has to settle it.
fn list_unwritten(ids: &[Id]) {
    for id in ids.iter().take(UNWRITTEN_LISTED_MAX) {
        // As in the lines about unknown outcomes.
        let key = id.key_hash();
        let (scope, operation) = (id.scope(), id.operation());
        tracing::error!(
            scope,
            operation,
            key,
            "the service has answered, and the store has not taken the outcome: it will be unknown; settle it as done"
        );
    }
    if !ids.is_empty() {
        let count = ids.len();
        tracing::error!(count, "outcomes were not written before the end of the process");
    }
}
