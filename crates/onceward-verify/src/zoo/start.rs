//! Starts a service of the zoo, with a check that has every option that a scenario can need.

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::charges::Charges;
use super::server::{self, Listening};
use super::table::ZooService;
use crate::endpoint::{Check, Effects};

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

fn check(service: &ZooService, port: u16) -> Check {
    let base = format!("http://127.0.0.1:{port}");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Check {
        body: r#"{"amount":12,"to":"anna"}"#.to_owned(),
        clients: 8,
        rounds: 6,
        effects: Effects::url(format!("{base}/effects")),
        tenants: Some([pair("Authorization", "Bearer anna"), pair("Authorization", "Bearer bert")]),
        other_url: Some(format!("{base}/refunds")),
        fail_header: Some(pair("X-Fail", "yes")),
        fail_after_effect_header: Some(pair("X-Fail-After", "{status}")),
        slow_header: Some(pair("X-Work-Ms", "800")),
        lease: LEASE,
        retention: Some(RETENTION),
        failures_are_final: service.failures_are_final,
        not_now: service.not_now.to_vec(),
        ..Check::new(format!("{base}/charges"))
    }
}
