//! A throw-away etcd for tests: one server, or a cluster of three.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use super::{Daemon, User, free_port, fresh_name, program, skip, until_ready};

pub(crate) struct Etcd {
    server: PathBuf,
    folder: PathBuf,
    port: u16,
    peer_port: u16,
    daemon: Option<Daemon>,
    options: Vec<String>,
}

impl Etcd {
    /// Starts one; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// One for all tests of this process that need only a prefix of their own.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Etcd> = OnceLock::new();
        installed()?;
        Some(SHARED.get_or_init(|| Self::start().expect("it is installed")))
    }

    /// Starts one with these options of its command line, and all others at their defaults.
    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        let mut server = Self::new(installed()?);
        server.options.extend(options.iter().map(|&option| option.to_owned()));
        server.up();
        Some(server)
    }

    /// Starts one that also listens with TLS, with these files for its certificate and its key, and says at which port.
    pub(crate) fn start_with_tls(certificate: &str, key: &str, options: &[&str]) -> Option<(Self, u16)> {
        let mut server = Self::new(installed()?);
        let tls_port = free_port();
        let listen = format!("http://127.0.0.1:{},https://127.0.0.1:{tls_port}", server.port);
        // The last of two options of one name counts.
        for option in ["--listen-client-urls", &listen, "--cert-file", certificate, "--key-file", key] {
            server.options.push(option.to_owned());
        }
        server.options.extend(options.iter().map(|&option| option.to_owned()));
        server.up();
        Some((server, tls_port))
    }

    /// Three that are one cluster.
    pub(crate) fn start_cluster() -> Option<Vec<Self>> {
        let program = installed()?;
        let mut nodes: Vec<Self> = (0..3).map(|_| Self::new(program.clone())).collect();
        let cluster = nodes.iter().map(|node| format!("{}=http://127.0.0.1:{}", node.name(), node.peer_port));
        let cluster = cluster.collect::<Vec<_>>().join(",");
        for node in &mut nodes {
            node.options.extend(["--initial-cluster".to_owned(), cluster.clone()]);
            node.launch();
        }
        nodes.iter().for_each(Self::until_healthy);
        Some(nodes)
    }

    /// The address of a cluster, under a prefix that is not used yet.
    pub(crate) fn cluster_url(nodes: &[Self]) -> String {
        let hosts = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect::<Vec<_>>();
        format!("etcd://{}?prefix={}/", hosts.join(","), fresh_name())
    }

    /// Which node of a cluster leads.
    pub(crate) fn leader(nodes: &[Self]) -> usize {
        let mut leader = None;
        until_ready(&nodes[0].folder.join("log"), || {
            leader = nodes.iter().position(|node| {
                // "endpoint, id, version, size, leads, …"
                let status = node.daemon.as_ref().map(|_| node.try_cli(&["endpoint", "status"]));
                status.flatten().is_some_and(|status| status.split(", ").nth(4) == Some("true"))
            });
            leader.is_some()
        });
        leader.expect("there is one now")
    }

    fn new(server: PathBuf) -> Self {
        let folder = User { ids: None }.folder();
        let (port, peer_port) = (free_port(), free_port());
        Self { server, folder, port, peer_port, daemon: None, options: Vec::new() }
    }

    fn name(&self) -> String {
        format!("node{}", self.port)
    }

    /// Starts it again after [`kill`](Self::kill), on the same port and with the same data.
    pub(crate) fn up(&mut self) {
        self.launch();
        self.until_healthy();
    }

    fn launch(&mut self) {
        let (clients, peers) =
            (format!("http://127.0.0.1:{}", self.port), format!("http://127.0.0.1:{}", self.peer_port));
        let mut command = vec![self.server.display().to_string()];
        let options = [
            ("--name", self.name()),
            ("--data-dir", self.folder.join("data").display().to_string()),
            ("--listen-client-urls", clients.clone()),
            ("--advertise-client-urls", clients),
            ("--listen-peer-urls", peers.clone()),
            ("--initial-advertise-peer-urls", peers.clone()),
            ("--log-level", "error".to_owned()),
            ("--heartbeat-interval", "50".to_owned()),
            ("--election-timeout", "500".to_owned()),
        ];
        command.extend(options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        if !self.options.iter().any(|option| option == "--initial-cluster") {
            command.extend(["--initial-cluster".to_owned(), format!("{}={peers}", self.name())]);
        }
        command.extend(self.options.iter().cloned());
        self.daemon = Some(Daemon::start(User { ids: None }, &self.folder, &command));
    }

    fn until_healthy(&self) {
        until_ready(&self.folder.join("log"), || self.is_healthy().unwrap_or(false));
    }

    /// Needs no login, other than `etcdctl endpoint health`.
    fn is_healthy(&self) -> std::io::Result<bool> {
        Ok(self.request("GET /health", "")?.contains("\"health\":\"true\""))
    }

    /// Writes a key of any bytes, which `etcdctl` cannot. Both are in base64.
    pub(crate) fn put(&self, key: &str, value: &str) {
        let body = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
        let answer = self.request("POST /v3/kv/put", &body).expect("it answers");
        assert!(answer.contains("200 OK"), "{answer}");
    }

    /// Writes one key so often that as many versions were written.
    pub(crate) fn write_versions(&self, count: usize) {
        const WRITERS: usize = 16;
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    (writer..count).step_by(WRITERS).for_each(|_| self.put("a2V5", "dmFsdWU="));
                });
            }
        });
    }

    fn request(&self, line: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "{line} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Kills it at once.
    pub(crate) fn kill(&mut self) {
        drop(self.daemon.take());
    }

    /// Stops it where it stands: it keeps its connections and answers nothing.
    pub(crate) fn freeze(&self) {
        self.daemon.as_ref().expect("it runs").freeze();
    }

    /// Lets it continue.
    pub(crate) fn thaw(&self) {
        self.daemon.as_ref().expect("it runs").thaw();
    }

    /// Runs a command of `etcdctl`, and returns what it prints.
    pub(crate) fn cli(&self, command: &[&str]) -> String {
        self.try_cli(command).unwrap_or_else(|| panic!("etcdctl {command:?} failed"))
    }

    fn try_cli(&self, command: &[&str]) -> Option<String> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint])
            .args(command)
            .output()
            .expect("etcdctl starts");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// An address under a prefix that is not used yet.
    pub(crate) fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}?prefix={}/", self.port, fresh_name())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn installed() -> Option<PathBuf> {
    let folders = ["/usr/bin".into(), "/usr/local/bin".into()];
    let found = program("etcd", &folders).filter(|_| program("etcdctl", &folders).is_some());
    if found.is_none() {
        skip("etcd (packages etcd-server and etcd-client)");
    }
    found
}
