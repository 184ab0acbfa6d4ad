//! A throw-away RabbitMQ server for tests, with a port mapper of its own.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::{Daemon, User, free_port, program, skip, until_ready};

pub(crate) struct RabbitMq {
    program: PathBuf,
    user: User,
    folder: PathBuf,
    port: u16,
    /// Of Erlang: by it the tools find the node. It stays when the server is killed.
    mapper_port: u16,
    node_port: u16,
    _mapper: Daemon,
    daemon: Option<Daemon>,
}

impl RabbitMq {
    /// Starts one; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let found = program("rabbitmq-server", &["/usr/lib/rabbitmq/bin".into()]);
        let mapper = program("epmd", &["/usr/bin".into()]);
        let (Some(program), Some(mapper)) = (found, mapper) else {
            skip("RabbitMQ (package rabbitmq-server)");
            return None;
        };
        let user = User::unprivileged("rabbitmq");
        let folder = user.folder();
        let [port, mapper_port, node_port] = [(); 3].map(|()| free_port());
        let mapper = [
            mapper.display().to_string(),
            "-port".into(),
            mapper_port.to_string(),
            "-address".into(),
            "127.0.0.1".into(),
        ];
        let mapper = Daemon::start(user, &user.folder(), &mapper);
        let mut server =
            Self { program, user, folder, port, mapper_port, node_port, _mapper: mapper, daemon: None };
        server.up();
        Some(server)
    }

    /// One for all tests of this process that need only queues of their own.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<RabbitMq>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// Starts it again after [`kill`](Self::kill), on the same ports and with the same data.
    pub(crate) fn up(&mut self) {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let plugins = self.folder.join("plugins");
        std::fs::write(&plugins, "[].").expect("a file in a folder of ours");
        self.user.given(plugins);
        let settings = [
            ("HOME", at("")),
            ("ERL_EPMD_PORT", self.mapper_port.to_string()),
            ("RABBITMQ_NODENAME", format!("onceward{}@localhost", self.port)),
            ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
            ("RABBITMQ_NODE_PORT", self.port.to_string()),
            ("RABBITMQ_DIST_PORT", self.node_port.to_string()),
            ("RABBITMQ_MNESIA_BASE", at("mnesia")),
            ("RABBITMQ_LOG_BASE", at("logs")),
            ("RABBITMQ_LOGS", "-".to_owned()),
            ("RABBITMQ_PID_FILE", at("pid")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins")),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".to_owned()),
            ("RABBITMQ_CONFIG_FILE", at("none")),
            // So that the script becomes the server, and is not its parent.
            ("RABBITMQ_ALLOW_INPUT", "1".to_owned()),
            ("RABBITMQ_SERVER_START_ARGS", "-noinput".to_owned()),
        ];
        let mut command = vec!["/usr/bin/env".to_owned()];
        command.extend(settings.map(|(name, value)| format!("{name}={value}")));
        command.push(self.program.display().to_string());
        self.daemon = Some(Daemon::start(self.user, &self.folder, &command));
        // It listens when everything else is up.
        until_ready(&self.folder.join("log"), || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// Waits until the server has written down that it has streams. RabbitMQ 3.10 keeps that in memory for some seconds after
    /// its very first stream was made; killed before, it never serves its streams again.
    pub(crate) fn until_streams_are_saved(&self) {
        let node = format!("onceward{}@localhost", self.port);
        let names =
            self.folder.join("mnesia").join(&node).join("coordination").join(&node).join("names.dets");
        let coordinator = b"rabbit_stream_coordinator";
        until_ready(&self.folder.join("log"), || {
            let names = std::fs::read(&names).unwrap_or_default();
            names.windows(coordinator.len()).any(|window| window == coordinator)
        });
    }

    /// Has the node do something, as an operator does, and returns what it says.
    pub(crate) fn control(&self, arguments: &[&str]) -> String {
        let node = format!("onceward{}@localhost", self.port);
        let mut command = self.user.command(&self.program.with_file_name("rabbitmqctl"));
        command.env("HOME", &self.folder).env("ERL_EPMD_PORT", self.mapper_port.to_string());
        command.args(["-q", "-n", &node]).args(arguments).current_dir("/");
        let output = command.output().expect("the tool starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Kills it at once.
    pub(crate) fn kill(&mut self) {
        drop(self.daemon.take());
    }

    pub(crate) fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port)
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
