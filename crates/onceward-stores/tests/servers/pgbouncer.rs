//! A throw-away PgBouncer in front of a PostgreSQL server.

use std::net::TcpStream;
use std::path::PathBuf;

use super::postgres::Postgres;
use super::{Daemon, User, free_port, program, skip, until_ready};

pub(crate) struct PgBouncer {
    folder: PathBuf,
    port: u16,
    _daemon: Daemon,
}

impl PgBouncer {
    /// Starts one with this `pool_mode`; `None` if it is not installed.
    pub(crate) fn start(server: &Postgres, pool_mode: &str) -> Option<Self> {
        let Some(bouncer) = program("pgbouncer", &["/usr/sbin".into(), "/usr/bin".into()]) else {
            skip("PgBouncer (package pgbouncer)");
            return None;
        };
        let (user, port) = (User::unprivileged("postgres"), free_port());
        let folder = user.folder();
        let config = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = {pool_mode}\nunix_socket_dir =\n\
             ignore_startup_parameters = extra_float_digits,options\n",
            server.port()
        );
        std::fs::write(&config, text).expect("a file in a folder of ours");
        user.given(config.clone());
        let command = [bouncer, config].map(|path| path.display().to_string());
        let daemon = Daemon::start(user, &folder, &command);
        until_ready(&folder.join("log"), || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Self { folder, port, _daemon: daemon })
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
