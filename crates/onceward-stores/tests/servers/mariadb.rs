//! A throw-away MariaDB server for tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use super::{Daemon, User, free_port, fresh_name, program, run, skip, until_ready};

pub(crate) struct MariaDb {
    server: PathBuf,
    user: User,
    folder: PathBuf,
    port: u16,
    daemon: Option<Daemon>,
    options: Vec<String>,
}

impl MariaDb {
    /// Starts one with everything at its default, durability included; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// One for all tests of this process that need only a database of their own.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<MariaDb> = OnceLock::new();
        installed()?;
        Some(SHARED.get_or_init(|| Self::start().expect("it is installed")))
    }

    /// The same with some options of the server's command line.
    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        Self::start_in(None, options)
    }

    /// The same in a folder that the caller keeps.
    pub(crate) fn start_in(folder: Option<PathBuf>, options: &[&str]) -> Option<Self> {
        let (server, install) = installed()?;
        let user = User::unprivileged("mysql");
        let folder = folder.map_or_else(|| user.folder(), |folder| user.given(folder));
        run(user
            .command(&install)
            .args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"])
            .arg(format!("--datadir={}", folder.join("data").display()))
            .arg(format!("--tmpdir={}", folder.display())));
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self { server, user, folder, port: free_port(), daemon: None, options };
        server.up();
        Some(server)
    }

    /// Kills it, and starts it again with other options.
    pub(crate) fn restart_with(&mut self, options: &[&str]) {
        self.kill();
        self.options = options.iter().map(|&option| option.to_owned()).collect();
        self.up();
    }

    /// Starts it again after [`kill`](Self::kill), on the same port and with the same data.
    pub(crate) fn up(&mut self) {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let mut command = vec![
            self.server.display().to_string(),
            "--no-defaults".into(),
            format!("--datadir={}", at("data")),
            format!("--tmpdir={}", at("")),
            format!("--socket={}", at("socket")),
            format!("--pid-file={}", at("pid")),
            format!("--port={}", self.port),
            "--bind-address=127.0.0.1".into(),
            "--skip-name-resolve".into(),
            "--max-connections=300".into(),
        ];
        command.extend(self.options.iter().cloned());
        let log = self.folder.join("log");
        self.daemon = Some(Daemon::start(self.user, &self.folder, &command));
        until_ready(&log, || {
            self.client("mariadb-admin").arg("ping").status().is_ok_and(|status| status.success())
        });
    }

    fn client(&self, name: &str) -> std::process::Command {
        let mut command = self.user.command(Path::new(name));
        command.args(["--no-defaults", "-u", "root", "-S"]).arg(self.folder.join("socket"));
        command.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Kills every process of it at once.
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

    /// Runs SQL with the command-line client, and returns what it prints.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let mut command = self.client("mariadb");
        command.args(["-N", "-B", "-D", database, "-e", sql]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.output().expect("the client starts");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// A fresh database.
    pub(crate) fn database(&self, name: &str) -> String {
        self.sql("mysql", &format!("CREATE DATABASE {name}"));
        self.url(name)
    }

    /// A fresh database under a name that is not used yet; returns the name.
    pub(crate) fn fresh(&self) -> String {
        let name = fresh_name();
        self.database(&name);
        name
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The server, and the program that makes its folder.
fn installed() -> Option<(PathBuf, PathBuf)> {
    let folders = ["/usr/sbin".into(), "/usr/bin".into()];
    let found = program("mariadbd", &folders).zip(program("mariadb-install-db", &folders));
    if found.is_none() {
        skip("MariaDB (package mariadb-server)");
    }
    found
}
