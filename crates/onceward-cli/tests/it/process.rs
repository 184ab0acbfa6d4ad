//! Starts `onceward` processes, and sends plain HTTP requests to them.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A command of the binary under test.
pub fn onceward(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onceward"));
    command.args(args);
    for name in ["ONCEWARD_ADMIN", "ONCEWARD_ADMIN_TOKEN", "ONCEWARD_APP_TOKEN", "ONCEWARD_STORE", "RUST_LOG"]
    {
        command.env_remove(name);
    }
    command
}

/// A running `onceward` with its admin listener on a port of its own. Dropping it kills it.
pub struct Process {
    pub child: Child,
    /// Held open, so that the process can keep printing.
    _output: BufReader<ChildStdout>,
    pub address: SocketAddr,
}

impl Process {
    /// Over the embedded store in `folder`.
    pub fn serve(folder: &Path) -> Self {
        Self::start(onceward(&["serve", "--admin", "127.0.0.1:0", "--log", "warn", "--store"]), folder)
    }

    /// `onceward proxy` without a service behind it: only its admin listener is tested.
    pub fn gateway(folder: &Path) -> Self {
        let nothing = ["proxy", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"];
        let mut command = onceward(&nothing);
        command.args(["--admin", "127.0.0.1:0", "--store"]);
        Self::start(command, folder)
    }

    /// Starts `command` with a store in `folder`.
    pub fn start(mut command: Command, folder: &Path) -> Self {
        command.arg(format!("embedded:{}", folder.join("receipts").display()));
        Self::spawn(command)
    }

    /// As this command starts it.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("admin on http://").unwrap_or_else(|| {
            let _ = child.kill();
            panic!("it did not print its address, but: {line:?}")
        });
        let address = address.replace("0.0.0.0", "127.0.0.1").parse().unwrap();
        Self { child, _output: output, address }
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(&mut self) {
        let told = Command::new("sh").arg("-c").arg(format!("kill -TERM {}", self.child.id())).status();
        assert!(told.unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }

    pub fn get(&self, path: &str) -> Answer {
        send(self.address, "GET", path, &[], "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        send(self.address, "POST", path, &[("Content-Type", "application/json")], &body.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request on a connection of its own.
pub fn send(address: SocketAddr, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
    try_send(address, method, path, fields, body).unwrap()
}

/// The same, to a process that may be killed meanwhile. An answer that breaks off is an error.
pub fn try_send(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> io::Result<Answer> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        write!(head, "Host: {address}\r\n").unwrap();
    }
    for (name, value) in fields {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    write!(head, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    socket.write_all(head.as_bytes())?;
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes)?;
    let answer = Answer::parse(&String::from_utf8(bytes).unwrap()).ok_or(io::ErrorKind::UnexpectedEof)?;
    match answer.field("content-length").map(|length| length.parse::<usize>().unwrap()) {
        Some(length) if length != answer.body.len() && method != "HEAD" => {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
        _ => Ok(answer),
    }
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    /// `None` if it ends within its head.
    fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let fields = lines.filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        Some(Self { status, fields, body: body.to_owned() })
    }

    /// Whether it is this problem.
    pub fn is_problem(&self, name: &str) -> bool {
        self.field("content-type") == Some("application/problem+json") && self.problem().1 == name
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The last part of the problem's type, with its status.
    #[track_caller]
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{self:?}");
        for member in ["title", "detail"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        }
        let name = problem["type"].as_str().unwrap().strip_prefix("urn:onceward:problem:").unwrap();
        (self.status, name.to_owned())
    }
}

/// Polls until there is a result. The limit is long, for machines under load.
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}
