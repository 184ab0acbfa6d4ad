//! A throw-away Redis server for tests.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use super::{Daemon, User, free_port, fresh_name, program, skip, until_free, until_ready};

pub(crate) struct Redis {
    server: PathBuf,
    user: User,
    folder: PathBuf,
    port: u16,
    daemon: Option<Daemon>,
    options: Vec<String>,
}

impl Redis {
    /// Starts one that syncs every write, as the record of truth should; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// One for all tests of this process that need only a prefix of their own.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Redis> = OnceLock::new();
        installed()?;
        Some(SHARED.get_or_init(|| Self::start().expect("it is installed")))
    }

    /// Starts one with these options of its command line, and all others at their defaults.
    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        let server = installed()?;
        let user = User::unprivileged("redis");
        let folder = user.folder();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self { server, user, folder, port: free_port(), daemon: None, options };
        server.up();
        Some(server)
    }

    /// Three nodes that share the slots.
    pub(crate) fn start_cluster() -> Option<Vec<Self>> {
        let options = ["--appendonly", "yes", "--appendfsync", "always", "--cluster-enabled", "yes"];
        // The port of the cluster's own bus is the node's port and this much more, which a random port may not allow.
        let options = [&options[..], &["--cluster-port"]].concat();
        let nodes = (0..3).map(|_| {
            let bus_port = free_port().to_string();
            Self::start_with(&[&options[..], &[&bus_port]].concat())
        });
        let nodes: Vec<Self> = nodes.collect::<Option<_>>()?;
        // Without --cluster create, which wants the usual port of the bus.
        for (number, node) in nodes.iter().enumerate() {
            for other in &nodes[..number] {
                let bus_port = other.options.last().expect("the port of its bus");
                node.cli(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string(), bus_port]);
            }
            let (first, last) = (number * 16384 / 3, (number + 1) * 16384 / 3 - 1);
            node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for node in &nodes {
            until_ready(&node.folder.join("log"), || {
                let info = node.cli(&["CLUSTER", "INFO"]);
                let slots = node.cli(&["CLUSTER", "SHARDS"]);
                info.contains("cluster_state:ok") && slots.matches("127.0.0.1").count() >= nodes.len()
            });
        }
        Some(nodes)
    }

    /// A sentinel that watches this server under the name `main`, and replaces it when it is told to: on a busy machine it
    /// would take a server that is only slow for dead.
    pub(crate) fn start_sentinel(&self) -> Sentinel {
        self.start_sentinel_with(None)
    }

    /// One that wants this password of its clients.
    pub(crate) fn start_sentinel_with(&self, password: Option<&str>) -> Sentinel {
        let (folder, port) = (self.user.folder(), free_port());
        let config = folder.join("sentinel.conf");
        let own = password.map(|password| format!("requirepass {password}\n")).unwrap_or_default();
        // That of the servers.
        let login = self.password().map(|password| format!("sentinel auth-pass main {password}\n"));
        let login = login.unwrap_or_default();
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds main 60000\nsentinel failover-timeout main 60000\n{login}{own}",
            folder.display(),
            self.port
        );
        std::fs::write(&config, text).expect("a file in a folder of ours");
        self.user.given(config.clone());
        let command = [&self.server, &config].map(|path| path.display().to_string());
        let command = [&command[..], &["--sentinel".to_owned()]].concat();
        let daemon = Daemon::start(self.user, &folder, &command);
        let password = password.map(str::to_owned);
        let sentinel = Sentinel { folder, port, password, _daemon: daemon };
        // By default it looks at each server every ten seconds, and a failover takes as long.
        until_ready(&sentinel.folder.join("log"), || {
            sentinel.cli(&["SENTINEL", "DEBUG", "info-period", "500"]) == "OK"
        });
        // It must know the replicas before it can replace the server by one of them.
        until_ready(&sentinel.folder.join("log"), || sentinel.replicas().contains("master-link-status\nok"));
        sentinel
    }

    /// Starts it again after [`kill`](Self::kill), on the same port and with the same data.
    pub(crate) fn up(&mut self) {
        let mut command = vec![
            self.server.display().to_string(),
            "--port".into(),
            self.port.to_string(),
            "--bind".into(),
            "127.0.0.1".into(),
            "--dir".into(),
            self.folder.display().to_string(),
            "--save".into(),
            String::new(),
            "--enable-debug-command".into(),
            "yes".into(),
        ];
        command.extend(self.options.iter().cloned());
        until_free(self.port);
        self.daemon = Some(Daemon::start(self.user, &self.folder, &command));
        // With or without a password, and in every role: it answers.
        until_ready(&self.folder.join("log"), || {
            let said = self.client(&["PING"]);
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            said.contains("PONG") || said.contains("NOAUTH")
        });
    }

    /// Kills it at once.
    pub(crate) fn kill(&mut self) {
        drop(self.daemon.take());
    }

    /// Kills it, and starts it again with other options.
    pub(crate) fn restart_with(&mut self, options: &[&str]) {
        self.kill();
        self.options = options.iter().map(|&option| option.to_owned()).collect();
        self.up();
    }

    /// Returns when a replica has everything that was written before this call.
    pub(crate) fn until_replicated(&self) {
        let mut client =
            self.command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("redis-cli starts");
        // The replica has this write, so it has all that were before it.
        let commands = b"SET until-replicated 1\nWAIT 1 60000\n";
        client.stdin.take().expect("it is a pipe").write_all(commands).expect("it reads");
        let output = client.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "OK\n1\n", "no replica has it: {}", self.cli(&["INFO", "replication"]));
    }

    /// Stops it where it stands: it keeps its connections and answers nothing.
    pub(crate) fn freeze(&self) {
        self.daemon.as_ref().expect("it runs").freeze();
    }

    /// Lets it continue.
    pub(crate) fn thaw(&self) {
        self.daemon.as_ref().expect("it runs").thaw();
    }

    /// Runs a command with the command-line client, and returns what it prints.
    pub(crate) fn cli(&self, command: &[&str]) -> String {
        let output = self.client(command);
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn client(&self, command: &[&str]) -> Output {
        self.command().args(command).output().expect("redis-cli starts")
    }

    /// The command-line client, logged in.
    fn command(&self) -> Command {
        let mut client = Command::new("redis-cli");
        client.args(["-p", &self.port.to_string()]);
        if let Some(password) = self.password() {
            client.env("REDISCLI_AUTH", password);
        }
        client
    }

    /// What `--requirepass` says.
    fn password(&self) -> Option<&str> {
        let at = self.options.iter().position(|option| option == "--requirepass")?;
        self.options.get(at + 1).map(String::as_str)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// An address under a prefix that is not used yet.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0?prefix={}", self.port, fresh_name())
    }
}

/// A sentinel.
pub(crate) struct Sentinel {
    folder: PathBuf,
    port: u16,
    password: Option<String>,
    _daemon: Daemon,
}

impl Sentinel {
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Has the replica of a primary that has died take over.
    pub(crate) fn fail_over(&self, replica: &Redis) {
        let log = self.folder.join("log");
        until_ready(&log, || {
            let primary = self.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
            let is_over = primary.ends_with(&format!("\n{}", replica.port));
            // Asked again until then: it gives up if it has not heard of the replica for a moment, as on a busy machine. While
            // it is at it, it answers that it is.
            if !is_over {
                self.cli(&["SENTINEL", "FAILOVER", "main"]);
            }
            is_over
        });
    }

    /// Makes a server that was started again follow the primary, and waits until it can take over.
    pub(crate) fn until_replica_of(&self, server: &Redis, primary: &Redis) {
        server.cli(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
        until_ready(&self.folder.join("log"), || {
            let replicas = self.replicas();
            server.cli(&["INFO", "replication"]).contains("master_link_status:up")
                && replicas.contains(&format!("\n{}\n", server.port))
                && !replicas.contains("s_down")
                && !replicas.contains("disconnected")
        });
    }

    fn replicas(&self) -> String {
        self.cli(&["SENTINEL", "REPLICAS", "main"])
    }

    /// Runs a command with the command-line client, and returns what it prints.
    pub(crate) fn cli(&self, command: &[&str]) -> String {
        let mut client = Command::new("redis-cli");
        client.args(["-p", &self.port.to_string()]).args(command);
        if let Some(password) = &self.password {
            client.env("REDISCLI_AUTH", password);
        }
        let said = client.output().expect("redis-cli starts");
        String::from_utf8_lossy(&said.stdout).trim_end().to_owned()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn installed() -> Option<PathBuf> {
    let found = program("redis-server", &["/usr/bin".into(), "/usr/local/bin".into()]);
    if found.is_none() {
        skip("Redis (package redis-server)");
    }
    found
}
