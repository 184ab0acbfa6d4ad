//! Starts a gateway from its settings, and stops it on a signal.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::Uri;
use onceward::{Onceward, Sweep};
use onceward_http::admin::{Admin, Readiness};
use onceward_http::{Admission, Metrics};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::callers::Callers;
use super::forward::Upstream;
use super::reload;
use super::route_table::{GatewayState, RouteTable};
use super::secret;
use super::serve::{ConnectionLimits, Gateway, serve};
use super::tls::{ClientTls, TlsFiles};
use super::worker_threads::WorkerThreads;
use crate::address::{ListenAddress, with_scheme};
use crate::admin;
use crate::config::{Period, Routes, Settings};
use crate::measured_store;
use crate::output::announce;

const LISTEN: &str = "127.0.0.1:8080";
const ADMIN: &str = "127.0.0.1:8081";
const STORE: &str = "embedded:./onceward-data";
const IN_FLIGHT_MAX: usize = 10_000;
const CONNECTIONS_MAX: usize = 10_000;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_GRACE: Duration = Duration::from_secs(10);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Runs the gateway until it is told to stop.
pub async fn run(config: Option<PathBuf>, given: Settings) -> Result<(), String> {
    let (file, routes) = match &config {
        Some(path) => Settings::read(path)?,
        None => (Settings::default(), Settings::built_in_routes()),
    };
    let settings = given.over(file.clone());
    let store_url = settings.store.as_deref().unwrap_or(STORE);
    let upstream = settings.upstream.as_deref().ok_or(
        "there is no upstream; name the service behind the gateway, as in --upstream http://127.0.0.1:3000",
    )?;
    let upstream: Uri =
        with_scheme(upstream).parse().map_err(|error| format!("upstream: `{upstream}`: {error}"))?;
    let upstream = Upstream::new(&upstream, settings.forwarded.unwrap_or_default())
        .map_err(|error| format!("upstream: {error}"))?;
    let callers = Callers::new(settings.jwt_key.as_deref())?;
    let tls = tls(&settings)?;

    let threads = WorkerThreads::open().map_err(|error| format!("cannot start: {error}"))?;
    // Listen before the store is opened: a second start by mistake fails without touching the store.
    let listener = bind("listen", settings.listen, LISTEN).await?;
    let admin_listener = bind("admin", settings.admin, ADMIN).await?;
    let auth = admin::auth(local(&admin_listener)?, settings.admin_token.as_deref())?;

    let (store, store_metrics) =
        measured_store::open(store_url).await.map_err(|error| format!("store: {error}"))?;
    let mut builder = Onceward::builder(store);
    if store_url.starts_with("memory:") {
        tracing::warn!("receipts are kept in memory: after a restart they are lost, and a retry runs again");
        builder = builder.accept_volatile();
    }
    let onceward = builder.build().map_err(|error| format!("store: {error}"))?;
    let given_secret = std::env::var(secret::VARIABLE).ok();
    let secrets = secret::for_store(store_url, given_secret.as_deref(), &onceward).await?;

    let mut admission = Admission::new().with_running_max(settings.in_flight_max.unwrap_or(IN_FLIGHT_MAX));
    if let Some(intents) = settings.in_flight_per_scope_max {
        admission = admission.with_running_per_scope_max(intents);
    }
    let state = GatewayState {
        onceward: onceward.clone(),
        secrets: Arc::new(secrets),
        metrics: Arc::new(Metrics::new()),
        admission: Arc::new(admission),
        upstream: Arc::new(upstream),
        callers,
    };
    let table = ArcSwap::from_pointee(RouteTable::new(&state, &routes));
    let bounds = ConnectionLimits {
        connections_max: settings.connections_max.unwrap_or(CONNECTIONS_MAX),
        head_timeout: period(settings.head_timeout, HEAD_TIMEOUT),
        body_grace: period(settings.body_grace, BODY_GRACE),
        drain_timeout: period(settings.drain_timeout, DRAIN_TIMEOUT),
    };
    let gateway = Arc::new(Gateway { state, table, tls, bounds });
    gateway.check(&routes)?;

    let sweep_every = period(settings.sweep_every, SWEEP_EVERY);
    let sweeper = onceward.clone();
    tokio::spawn(async move { sweeper.sweep_forever(Sweep::default(), sweep_every).await });
    // Signals are caught before the addresses are announced.
    let caught = |kind| signal(kind).map_err(|error| format!("signals cannot be received: {error}"));
    let hangup = caught(SignalKind::hangup())?;
    let stop_signals = [caught(SignalKind::terminate())?, caught(SignalKind::interrupt())?];
    tokio::spawn(reload::watch_file(gateway.clone(), config.map(|path| (path, file)), hangup));

    let readiness = Arc::new(Readiness::new().with_upstream(gateway.state.upstream.address()));
    let operators = Admin::new(onceward)
        .with_readiness(readiness.clone())
        .with_layer_metrics(gateway.state.metrics.clone())
        .with_metrics(move |out| store_metrics.write(out));
    let operators = admin::router(&operators, auth);
    announce(&format!("admin on http://{}", local(&admin_listener)?));
    let (finish, finished) = watch::channel(false);
    let admin = tokio::spawn(admin::serve(admin_listener, operators, until_set(finished)));

    let (stop, stopped) = watch::channel(false);
    tokio::spawn(wait_for_signals(stop_signals, stop));
    let scheme = if gateway.tls.is_some() { "https" } else { "http" };
    announce(&format!("listening on {scheme}://{}", local(&listener)?));
    let drain = async {
        until_set(stopped).await;
        readiness.drain();
    };
    serve(gateway.clone(), &threads, listener, drain).await;
    finish_in_flight(&gateway).await;
    // The admin listener stops last, so that monitors can read the final metrics.
    let _ = finish.send(true);
    let _ = admin.await;
    Ok(())
}

impl Gateway {
    /// Whether these routes can be served here.
    pub fn check(&self, routes: &Routes) -> Result<(), String> {
        let certificates = self.tls.as_ref().is_some_and(ClientTls::asks_for_certificates);
        for route in routes.each() {
            let checked = self.state.callers.check(&route.scope, certificates);
            checked.map_err(|error| format!("{}: {error}", route.pattern))?;
        }
        Ok(())
    }
}

fn tls(settings: &Settings) -> Result<Option<ClientTls>, String> {
    match (&settings.tls_cert, &settings.tls_key) {
        (Some(certificate), Some(key)) => ClientTls::new(&TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authorities: settings.tls_client_ca.clone(),
        })
        .map(Some),
        (None, None) if settings.tls_client_ca.is_some() => {
            Err("tls_client_ca: client certificates need TLS; set tls_cert and tls_key too".into())
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err("tls_key: it is missing; tls_cert needs its private key".into()),
        (None, Some(_)) => Err("tls_cert: it is missing; tls_key needs its certificate".into()),
    }
}

async fn bind(name: &str, address: Option<ListenAddress>, default: &str) -> Result<TcpListener, String> {
    let address = address.unwrap_or_else(|| default.parse().expect("the default is valid"));
    TcpListener::bind(address.0).await.map_err(|error| {
        format!("{name}: cannot listen on {address}: {error}; choose another address with --{name}")
    })
}

fn local(listener: &TcpListener) -> Result<SocketAddr, String> {
    listener.local_addr().map_err(|error| error.to_string())
}

fn period(given: Option<Period>, default: Duration) -> Duration {
    given.map_or(default, |period| period.0)
}

/// Resolves when the value is true.
async fn until_set(mut stopped: watch::Receiver<bool>) {
    // Without a sender it never becomes true.
    if stopped.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn wait_for_signals([mut terminate, mut interrupt]: [Signal; 2], stop: watch::Sender<bool>) {
    let mut asked = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    asked().await;
    tracing::info!("stopping: finishing requests in flight");
    let _ = stop.send(true);
    // A second signal means: do not wait.
    asked().await;
    std::process::exit(130);
}

/// Waits for requests whose client has disconnected: they run on without a connection.
async fn finish_in_flight(gateway: &Gateway) {
    const POLL_INTERVAL: Duration = Duration::from_millis(20);
    let waited = tokio::time::timeout(gateway.bounds.drain_timeout, async {
        while gateway.state.metrics.in_flight() > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    });
    if waited.await.is_err() {
        tracing::warn!("some requests did not finish in time; their outcomes will be unknown");
    }
}
