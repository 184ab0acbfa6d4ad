//! Starts a service of the zoo, with a check that has every option that a scenario can need.

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::charges::Charges;
use super::server::{self, Listening, WEBHOOK_SECRET};
use super::table::ZooService;
use crate::endpoint::{Check, Effects, Pattern, Scheme, Webhook};

/// What a check of the zoo says of the lease. Claims of the zoo last a little less.
const LEASE: Duration = Duration::from_millis(300);
/// What it says of the retention.
const RETENTION: Duration = Duration::from_secs(2);

/// A service that listens, in this process. Dropping it ends it.
pub struct RunningService {
    _instances: Vec<Listening>,
    /// What to ask of it.
    pub check: Check,
}

impl RunningService {
    /// Lets it listen on free ports.
    pub async fn start(service: &ZooService) -> io::Result<Self> {
        let charges = Arc::new(Charges::default());
        let mut instances = Vec::new();
        for service in (service.make)(&charges) {
            instances.push(server::listen("127.0.0.1:0", service, charges.clone()).await?);
        }
        let mut check = check(service, instances[0].address.port());
        let also = instances[1..].iter().map(|other| format!("http://{}/charges", other.address));
        check.also_urls = also.collect();
        Ok(Self { _instances: instances, check })
    }
}

/// Serves a service at this port, with its books in this folder, until the process is killed.
pub async fn serve(service: &ZooService, port: u16, folder: &Path) -> io::Result<()> {
    let charges = Arc::new(Charges::in_folder(folder)?);
    let service = (service.make)(&charges).remove(0);
    let _listening = server::listen(&format!("127.0.0.1:{port}"), service, charges).await?;
    std::future::pending().await
}

/// A check of a service that `program` serves in a process of its own, with its books in this folder.
pub fn check_of_process(service: &ZooService, program: &Path, folder: &Path) -> io::Result<Check> {
    let port = free_port()?;
    let mut check = check(service, port);
    let (program, folder) = (program.display(), folder.display());
    check.start_command =
        Some(format!("exec '{program}' serve {} --port {port} --folder '{folder}'", service.name));
    Ok(check)
}

/// A port that nobody listens at, below those that the system gives to connections: one of theirs could be
/// taken while the server is down.
pub fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let seed = u16::try_from(std::process::id() % 10_000).unwrap_or_default();
    (0..10_000)
        .map(|_| 20_000 + (seed + NEXT.fetch_add(1, Ordering::Relaxed) % 10_000) % 10_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .ok_or_else(|| io::ErrorKind::AddrInUse.into())
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| text.parse().expect("the zoo's own patterns are well formed")).collect()
}

fn check(service: &ZooService, port: u16) -> Check {
    let base = format!("http://127.0.0.1:{port}");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Check {
        // A body that was taken from a real request has the key of that.
        body: match service.key_pointer {
            None => r#"{"amount":12,"to":"anna"}"#.into(),
            Some(_) => r#"{"amount":12,"request_id":"of-another","to":"anna"}"#.into(),
        },
        clients: 8,
        rounds: 6,
        effects: Effects::url(format!("{base}/effects")),
        tenants: vec![
            [pair("Authorization", "Bearer anna.1"), pair("Authorization", "Bearer bert.1")],
            [pair("Cookie", "theme=dark; user=carl"), pair("Cookie", "theme=dark; user=dora")],
            [pair("Host", "one.localhost"), pair("Host", "two.localhost")],
        ],
        refreshed: Some(pair("Authorization", "Bearer anna.2")),
        versioned_url: Some(format!("{base}/limits")),
        webhook: Some(Webhook::new(format!("{base}/events"), Scheme::Stripe, WEBHOOK_SECRET)),
        other_url: Some(format!("{base}/refunds")),
        fail_headers: vec![pair("X-Fail", "yes")],
        fail_after_effect_headers: vec![pair("X-Fail-After", "{status}")],
        slow_header: Some(pair("X-Work-Ms", "800")),
        lease: LEASE,
        retention: Some(RETENTION),
        failures_are_final: service.failures_are_final,
        not_now: patterns(service.not_now),
        refused: patterns(service.refused),
        failed: patterns(service.failed),
        held: patterns(service.held),
        timeout: service.answers_within,
        key_pointer: service.key_pointer.map(str::to_owned),
        key_parameter: service.key_parameter.map(str::to_owned),
        ..Check::new(match service.key_parameter {
            None => format!("{base}/charges"),
            Some(name) => format!("{base}/charges?{name}=of-another&for=anna"),
        })
    }
}
