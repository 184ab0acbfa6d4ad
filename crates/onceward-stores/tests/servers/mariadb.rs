//! A MariaDB of our own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::{Daemon, User, free_port, program, run, skip, until_ready};

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

    /// The same with some options of the server's command line.
    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        let folders = ["/usr/sbin".into(), "/usr/bin".into()];
        let (Some(server), Some(install)) =
            (program("mariadbd", &folders), program("mariadb-install-db", &folders))
        else {
            skip("MariaDB (package mariadb-server)");
            return None;
        };
        let user = User::unprivileged("mysql");
        let folder = user.folder();
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

    /// Stops it where it stands: it holds its connections and answers nothing.
    pub(crate) fn freeze(&self) {
        self.daemon.as_ref().expect("it runs").signal("-STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.daemon.as_ref().expect("it runs").signal("-CONT");
    }

    /// Runs SQL with the command-line client, and gives what it prints.
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
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
