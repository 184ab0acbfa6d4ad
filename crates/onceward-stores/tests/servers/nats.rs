//! A throw-away NATS server with JetStream for tests.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::{Daemon, User, free_port, program, skip, until_ready};

pub(crate) struct Nats {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    daemon: Option<Daemon>,
    options: Vec<String>,
}

impl Nats {
    /// Starts one; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = program("nats-server", &["/usr/sbin".into()]) else {
            skip("NATS (nats-server, as `./check` installs it)");
            return None;
        };
        let folder = USER.folder();
        let mut server = Self { program, folder, port: free_port(), daemon: None, options: Vec::new() };
        server.up();
        Some(server)
    }

    /// One for all tests of this process that need only a stream of their own.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Nats>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// Starts it again after [`kill`](Self::kill), on the same port and with the same data.
    pub(crate) fn up(&mut self) {
        let text = |path: PathBuf| path.display().to_string();
        let (port, data) = (self.port.to_string(), text(self.folder.join("data")));
        let mut command = vec![text(self.program.clone())];
        command.extend(["-a", "127.0.0.1", "-p", &port, "-js", "-sd", &data].map(str::to_owned));
        command.extend(self.options.iter().cloned());
        self.daemon = Some(Daemon::start(USER, &self.folder, &command));
        until_ready(&self.folder.join("log"), || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Kills it, and starts it again with other options of its command line.
    pub(crate) fn restart_with(&mut self, options: &[&str]) {
        self.kill();
        self.options = options.iter().map(|&option| option.to_owned()).collect();
        self.up();
    }

    /// Kills it at once.
    pub(crate) fn kill(&mut self) {
        drop(self.daemon.take());
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

/// It runs as this user, also if that is root.
const USER: User = User { ids: None };

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
