//! A scripted service, and a gateway in front of it, each on a port of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Answer, onceward, send};

/// How often a campaign is repeated: usually, and with `ONCEWARD_LONG=1`.
pub fn rounds(usual: usize, long: usize) -> usize {
    if std::env::var_os("ONCEWARD_LONG").is_some() { long } else { usual }
}

/// A request as the service got it.
#[derive(Clone, Debug)]
pub struct Received {
    pub line: String,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Received {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub fn key(&self) -> &str {
        self.field("idempotency-key").unwrap_or_default()
    }
}

/// What the service does once it has read a request.
pub enum Reply {
    /// It answers, and keeps the connection.
    Answer(u16, String),
    /// It sends these bytes and closes.
    Raw(Vec<u8>),
    /// It sends these bytes, and then nothing more on the open connection.
    Stall(Vec<u8>),
}

impl Reply {
    pub fn created(body: impl Into<String>) -> Self {
        Self::Answer(201, body.into())
    }
}

type Script = dyn Fn(&Received) -> Reply + Send + Sync;

/// A scripted service. It records every request that it has read completely: each is an effect.
pub struct Service {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    closed: Arc<AtomicBool>,
}

impl Service {
    /// A service that follows a script.
    pub fn start(script: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), script)
    }

    pub fn start_at(
        address: SocketAddr,
        script: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let closed = Arc::new(AtomicBool::new(false));
        let (log, over, script) = (received.clone(), closed.clone(), Arc::new(script) as Arc<Script>);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (log, script) = (log.clone(), script.clone());
                thread::spawn(move || converse(stream, &log, &*script));
            }
        });
        Self { address, received, closed }
    }

    /// A service that charges: its answers count up.
    pub fn charging() -> Self {
        let count = Mutex::new(0);
        Self::start(move |_| {
            let mut count = count.lock().unwrap();
            *count += 1;
            Reply::created(format!("{{\"charge\":{count}}}"))
        })
    }

    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub fn effects(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn converse(stream: TcpStream, log: &Mutex<Vec<Received>>, script: &Script) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader) {
        log.lock().unwrap().push(request.clone());
        match script(&request) {
            Reply::Answer(status, body) => {
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} Fine\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
                );
                if writer.write_all((head + &body).as_bytes()).is_err() {
                    return;
                }
            }
            Reply::Raw(bytes) => {
                let _ = writer.write_all(&bytes);
                let _ = writer.shutdown(Shutdown::Both);
                return;
            }
            Reply::Stall(bytes) => {
                let _ = writer.write_all(&bytes);
                // Until the other side closes.
                let _ = reader.read(&mut [0]);
                return;
            }
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Received> {
    let line = read_line(reader)?;
    let mut fields = Vec::new();
    loop {
        let field = read_line(reader)?;
        let Some((name, value)) = field.split_once(": ") else { break };
        fields.push((name.to_lowercase(), value.to_owned()));
    }
    let request = Received { line, fields, body: Vec::new() };
    let mut body = Vec::new();
    if let Some(length) = request.field("content-length") {
        body.resize(length.parse().ok()?, 0);
        reader.read_exact(&mut body).ok()?;
    } else if request.field("transfer-encoding").is_some() {
        loop {
            let length = usize::from_str_radix(&read_line(reader)?, 16).ok()?;
            let mut chunk = vec![0; length];
            reader.read_exact(&mut chunk).ok()?;
            read_line(reader)?;
            if length == 0 {
                break;
            }
            body.extend(chunk);
        }
    }
    Some(Received { body, ..request })
}

fn read_line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    match reader.read_line(&mut line) {
        Ok(1..) => Some(line.trim_end().to_owned()),
        _ => None,
    }
}

/// A gateway. Dropping it kills it.
pub struct Gateway {
    pub child: Child,
    pub address: SocketAddr,
    pub admin: SocketAddr,
}

/// Where a gateway keeps its receipts and its configuration.
pub struct Home {
    pub folder: TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn config(&self) -> std::path::PathBuf {
        self.folder.path().join("onceward.toml")
    }

    pub fn write_config(&self, text: &str) {
        // Replaced atomically.
        let new = self.folder.path().join("new.toml");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.config()).unwrap();
    }

    /// A gateway in front of a service, with the configuration that was written, if one was.
    pub fn start(&self, upstream: &str) -> Gateway {
        Gateway::start(self.folder.path(), upstream, &self.config(), &[])
    }

    pub fn start_with(&self, upstream: &str, flags: &[&str]) -> Gateway {
        Gateway::start(self.folder.path(), upstream, &self.config(), flags)
    }
}

impl Gateway {
    fn start(folder: &Path, upstream: &str, config: &Path, flags: &[&str]) -> Self {
        let store = format!("embedded:{}", folder.join("receipts").display());
        Self::start_on(&store, upstream, config, flags, &[])
    }

    /// With this store and these environment variables.
    pub fn start_on(
        store: &str,
        upstream: &str,
        config: &Path,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = onceward(&["proxy", "--upstream", upstream, "--store", store]);
        command.envs(variables.iter().copied());
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"]).args(flags);
        if !flags.contains(&"--drain-delay") {
            command.args(["--drain-delay", "0s"]);
        }
        if config.exists() {
            command.arg("--config").arg(config);
        }
        Self::spawn(command)
    }

    /// As this command starts it.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |begin: &str| {
            let line = said.next().map(Result::unwrap).unwrap_or_default();
            let address = line.strip_prefix(begin).and_then(|rest| rest.split_once("://"));
            address.unwrap_or_else(|| panic!("it did not say {begin:?}, but {line:?}")).1.parse().unwrap()
        };
        let (admin, address) = (address("admin on "), address("listening on "));
        Self { child, address, admin }
    }

    /// A POST with a key.
    pub fn charge(&self, key: &str, body: &str) -> Answer {
        self.post("/charges", &[("Idempotency-Key", key)], body)
    }

    pub fn post(&self, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        let mut all = vec![("Content-Type", "application/json")];
        all.extend_from_slice(fields);
        // The host counts, and a gateway that is started again listens on another port.
        if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            all.push(("Host", "pay.example"));
        }
        send(self.address, "POST", path, &all, body)
    }

    pub fn get(&self, path: &str) -> Answer {
        send(self.address, "GET", path, &[], "")
    }

    /// Sends bytes as they are, and reads until the gateway closes.
    pub fn raw(&self, bytes: &[u8]) -> String {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // A reset also ends the response.
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The value of a metric; 0 if it has never been counted.
    pub fn metric(&self, name: &str) -> f64 {
        let metrics = send(self.admin, "GET", "/metrics", &[], "").body;
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = std::process::Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(status.success());
    }

    /// The processor time that it has used: of all of its threads, also of those that have ended.
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The name of the program may contain spaces.
        let mut fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11);
        let mut ticks = || fields.next().unwrap().parse::<u64>().unwrap();
        // Of a hundredth of a second, for every program (`USER_HZ`).
        Duration::from_millis(10 * (ticks() + ticks()))
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
