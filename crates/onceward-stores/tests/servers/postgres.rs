//! A throw-away PostgreSQL server for tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use super::{Daemon, User, free_port, fresh_name, program, run, skip, until_ready};

pub(crate) struct Postgres {
    programs: PathBuf,
    user: User,
    folder: PathBuf,
    port: u16,
    daemon: Option<Daemon>,
    settings: Vec<String>,
}

impl Postgres {
    /// Starts one with everything at its default, durability included; `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// One for all tests of this process that need only a database of their own.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        installed()?;
        Some(SHARED.get_or_init(|| Self::start().expect("it is installed")))
    }

    /// The same with some settings changed (`name=value`).
    pub(crate) fn start_with(settings: &[&str]) -> Option<Self> {
        let (programs, user) = installed()?;
        let folder = user.folder();
        run(user
            .command(&programs.join("initdb"))
            .args(["-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D"])
            .arg(folder.join("data")));
        Some(Self::launch(programs, user, folder, settings))
    }

    /// A streaming standby of this server, under a name that `synchronous_standby_names` can ask for.
    pub(crate) fn standby(&self, name: &str) -> Self {
        let folder = self.user.folder();
        let source = format!("host=127.0.0.1 port={} user=postgres application_name={name}", self.port);
        run(self
            .user
            .command(&self.programs.join("pg_basebackup"))
            .args(["-R", "-c", "fast", "-X", "stream", "-d", &source, "-D"])
            .arg(folder.join("data")));
        Self::launch(self.programs.clone(), self.user, folder, &["hot_standby=on"])
    }

    fn launch(programs: PathBuf, user: User, folder: PathBuf, settings: &[&str]) -> Self {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Self { programs, user, folder, port: free_port(), daemon: None, settings };
        server.up();
        server
    }

    /// Starts it again after [`kill`](Self::kill), on the same port and with the same data.
    pub(crate) fn up(&mut self) {
        let text = |path: &Path| path.display().to_string();
        let mut command =
            vec![text(&self.programs.join("postgres")), "-D".into(), text(&self.folder.join("data"))];
        let settings = [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".into(),
            format!("unix_socket_directories={}", text(&self.folder)),
            "max_connections=200".into(),
        ];
        for setting in settings.iter().chain(&self.settings) {
            command.extend(["-c".to_owned(), setting.clone()]);
        }
        let log = self.folder.join("log");
        self.daemon = Some(Daemon::start(self.user, &self.folder, &command));
        until_ready(&log, || self.is_ready());
    }

    fn is_ready(&self) -> bool {
        let mut command = self.user.command(&self.programs.join("pg_isready"));
        command.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]).stdout(Stdio::null());
        command.current_dir("/").status().is_ok_and(|status| status.success())
    }

    /// Kills every process of it at once.
    pub(crate) fn kill(&mut self) {
        drop(self.daemon.take());
    }

    /// Stops every process of it where it stands: it keeps its connections and answers nothing.
    pub(crate) fn freeze(&self) {
        self.daemon.as_ref().expect("it runs").freeze();
    }

    /// Lets it continue.
    pub(crate) fn thaw(&self) {
        self.daemon.as_ref().expect("it runs").thaw();
    }

    /// Makes a standby the primary.
    pub(crate) fn promote(&self) {
        run(self
            .user
            .command(&self.programs.join("pg_ctl"))
            .args(["promote", "-w", "-D"])
            .arg(self.folder.join("data")));
    }

    /// Runs SQL with `psql`, and returns what it prints.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        let mut command = self.user.command(&self.programs.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", "127.0.0.1"]);
        command.args(["-p", &self.port.to_string(), "-d", database, "-c", sql]).current_dir("/");
        let output = command.output().expect("psql starts");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where its programs are: `pgbench` is one of them.
    pub(crate) fn programs(&self) -> &Path {
        &self.programs
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// A fresh database.
    pub(crate) fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(name)
    }

    /// A fresh database under a name that is not used yet; returns the name.
    pub(crate) fn fresh(&self) -> String {
        let name = fresh_name();
        self.database(&name);
        name
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The newest version that Debian has put on this machine, or what is in the path.
fn installed() -> Option<(PathBuf, User)> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    folders.sort();
    folders.reverse();
    let Some(initdb) = program("initdb", &folders) else {
        skip("PostgreSQL (package postgresql)");
        return None;
    };
    Some((initdb.parent().expect("a program is in a folder").to_owned(), User::unprivileged("postgres")))
}
