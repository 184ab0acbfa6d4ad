//! Asks a database for the number of effects with its own command-line client, without a shell.

use tokio::process::Command;

use super::error::{Error, Result};
use super::oracle::printed;

/// How a database is asked.
#[derive(Clone, Debug)]
pub(super) struct SqlClient {
    program: &'static str,
    arguments: Vec<String>,
    /// Passwords are passed by the environment: arguments are seen by everybody on the machine.
    environment: Vec<(&'static str, String)>,
}

impl SqlClient {
    /// For `postgres://…`, `mysql://…` or `sqlite:FILE`. User, password and name of the database may be percent-encoded.
    pub(super) fn read(url: &str) -> Result<Self> {
        if let Some(file) = url.strip_prefix("sqlite:") {
            let file = file.strip_prefix("//").unwrap_or(file);
            let arguments = vec!["-batch".to_owned(), file.to_owned()];
            return Ok(Self { program: "sqlite3", arguments, environment: Vec::new() });
        }
        let wrong = || {
            Error::invalid(
                "--effects-sql needs a URL that begins with postgres://, mysql:// or sqlite:".to_owned(),
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (encoded_user, password) = user.split_once(':').unwrap_or((user, ""));
        let (user, password) = (decoded(encoded_user), decoded(password));
        match scheme {
            "postgres" | "postgresql" => {
                let user = if encoded_user.is_empty() { String::new() } else { format!("{encoded_user}@") };
                let url = format!("postgresql://{user}{host}/{database}");
                let arguments = ["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", &url, "-c"];
                let environment = vec![("PGPASSWORD", password)];
                Ok(Self { program: "psql", arguments: arguments.map(str::to_owned).to_vec(), environment })
            }
            "mysql" | "mariadb" => {
                let (host, port) = host.split_once(':').unwrap_or((host, "3306"));
                let mut arguments: Vec<String> =
                    ["-N", "-B", "--protocol=tcp", "-h", host, "-P", port].map(str::to_owned).to_vec();
                if !user.is_empty() {
                    arguments.extend(["-u".to_owned(), user]);
                }
                let database = decoded(database.split('?').next().unwrap_or_default());
                arguments.extend([database, "-e".to_owned()]);
                let environment = vec![("MYSQL_PWD", password)];
                Ok(Self { program: mysql_client(), arguments, environment })
            }
            _ => Err(wrong()),
        }
    }

    /// What the query gives.
    pub(super) async fn ask(&self, query: &str) -> Result<String> {
        let mut command = Command::new(self.program);
        command.args(&self.arguments).arg(query);
        for (name, value) in self.environment.iter().filter(|(_, value)| !value.is_empty()) {
            command.env(name, value);
        }
        printed(command, self.program).await
    }
}

/// The client of MariaDB, or that of MySQL where there is no other. They take the same arguments.
fn mysql_client() -> &'static str {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &str| std::env::split_paths(&folders).any(|folder| folder.join(program).is_file());
    if !is_there("mariadb") && is_there("mysql") { "mysql" } else { "mariadb" }
}

/// Percent-decoded. What is no text then stays as it is.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
#[path = "sql_client_test.rs"]
mod tests;
