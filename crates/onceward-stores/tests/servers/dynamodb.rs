//! Throw-away stand-ins for DynamoDB: dynoxide and moto, two independent implementations of its protocol.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::{Daemon, User, free_port, fresh_name, program, skip, until_ready};

pub(crate) struct DynamoDb {
    folder: PathBuf,
    port: u16,
    _daemon: Daemon,
}

impl DynamoDb {
    /// `cargo install dynoxide-rs`; `None` if it is not installed.
    pub(crate) fn dynoxide() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<DynamoDb>> = OnceLock::new();
        let start = || {
            Self::start(
                "dynoxide",
                "dynoxide (crate dynoxide-rs)",
                &["serve", "--host", "127.0.0.1", "--port"],
            )
        };
        SHARED.get_or_init(start).as_ref()
    }

    /// `pip install moto[server]`; `None` if it is not installed. One request at a time, because its conditional writes are
    /// not atomic among its own threads. And it counts an attribute that is replaced twice for the size of its item, so the
    /// former one is removed first.
    pub(crate) fn moto() -> Option<&'static Self> {
        const ONE_AT_A_TIME: &str = "import sys
from moto.dynamodb.models.dynamo_type import LimitedSizeDict
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
set_item = LimitedSizeDict.__setitem__
def replace(item, key, value):
    item.pop(key, None)
    set_item(item, key, value)
LimitedSizeDict.__setitem__ = replace
run_simple('127.0.0.1', int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)";
        static SHARED: OnceLock<Option<DynamoDb>> = OnceLock::new();
        let start = || {
            let what = "moto (PyPI, moto[server])";
            let Some(server) = program("moto_server", &[]) else {
                skip(what);
                return None;
            };
            // The Python of its environment is next to it.
            let python = server.with_file_name("python3").display().to_string();
            Self::start(&python, what, &["-c", ONE_AT_A_TIME])
        };
        SHARED.get_or_init(start).as_ref()
    }

    fn start(name: &str, what: &str, options: &[&str]) -> Option<Self> {
        let Some(server) = program(name, &[]) else {
            skip(what);
            return None;
        };
        let (user, port) = (User { ids: None }, free_port());
        let folder = user.folder();
        let mut command = vec![server.display().to_string()];
        command.extend(options.iter().map(|&option| option.to_owned()));
        command.push(port.to_string());
        let daemon = Daemon::start(user, &folder, &command);
        until_ready(&folder.join("log"), || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Self { folder, port, _daemon: daemon })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The address of a table that does not exist yet.
    pub(crate) fn url(&self) -> String {
        Self::url_at(self.port)
    }

    /// The same, asked for at another port.
    pub(crate) fn url_at(port: u16) -> String {
        format!("dynamodb://key:secret@{}?region=us-east-1&endpoint=http://127.0.0.1:{port}", fresh_name())
    }
}

impl Drop for DynamoDb {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
