//! Throw-away database servers: real ones, each in a temporary folder on a free port, so that they can
//! also be killed. They go with the process that started them, however it ends.
//!
//! Included by path where it is needed; not every binary uses all of it.
#![allow(dead_code, reason = "shared by several test binaries")]

mod certificates;
mod dynamodb;
mod etcd;
mod mariadb;
mod nats;
mod pgbouncer;
mod postgres;
mod rabbitmq;
mod redis;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "shared by several test binaries")]
pub(crate) use certificates::Certificates;
#[allow(unused_imports, reason = "shared by several test binaries")]
pub(crate) use dynamodb::DynamoDb;
#[allow(unused_imports, reason = "shared by several test binaries")]
pub(crate) use etcd::Etcd;
#[allow(unused_imports, reason = "shared by several test binaries")]
pub(crate) use mariadb::MariaDb;
#[allow(unused_imports, reason = "shared by several test binaries")]
pub(crate) use nats::Nats;
#[allow(unused_imports, reason = "shared by several test binaries")]
pub(crate) use pgbouncer::PgBouncer;
pub(crate) use postgres::Postgres;
#[allow(unused_imports, reason = "shared by several test binaries")]
pub(crate) use rabbitmq::RabbitMq;
#[allow(unused_imports, reason = "shared by several test binaries")]
pub(crate) use redis::Redis;

/// How long a server may take to come up on a loaded machine.
const START_MAX: Duration = Duration::from_secs(90);

/// A program from `PATH` or from one of the folders where Debian hides it.
fn program(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.iter().cloned().chain(std::env::split_paths(&path)).map(|at| at.join(name)).find(|at| at.exists())
}

/// Says loudly that a test was left out; under `./check` that is a failure.
pub(crate) fn skip(what: &str) {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    assert!(std::env::var_os("ONCEWARD_CHECK").is_none(), "{what} is not installed, and ./check needs it");
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    eprintln!("SKIPPED ({count}): {what} is not installed, so nothing was tested against it");
}

/// Whom a server runs as: database servers refuse to run as root.
#[derive(Clone, Copy)]
struct User {
    ids: Option<(u32, u32)>,
}

impl User {
    /// This user, if it is not root; otherwise the one that the package made.
    fn unprivileged(name: &str) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let ids =
            passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|parts| parts[0] == name);
        let ids = ids.and_then(|parts| Some((parts.get(2)?.parse().ok()?, parts.get(3)?.parse().ok()?)));
        Self { ids: ids.filter(|_| root) }
    }

    fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.ids {
            command.uid(user).gid(group);
        }
        command
    }

    /// A folder of its own, below the system's temporary one.
    fn folder(self) -> PathBuf {
        let folder =
            tempfile::Builder::new().prefix("onceward-").tempdir().expect("a temporary folder").keep();
        self.given(folder)
    }

    /// A folder, given to this user.
    fn given(self, folder: PathBuf) -> PathBuf {
        if let Some((user, group)) = self.ids {
            chown(&folder, Some(user), Some(group)).expect("root may give a folder away");
        }
        folder
    }
}

/// A server process under a shell that ends it as soon as this process is gone.
struct Daemon {
    shell: Child,
    pid: u32,
}

impl Daemon {
    /// Starts `command` with its output in `folder`; when our end of the shell's input closes, because
    /// this process has ended, the server is killed and the folder removed.
    fn start(user: User, folder: &Path, command: &[String]) -> Self {
        const SCRIPT: &str = r#"folder=$1; shift; "$@" >>"$folder/log" 2>&1 </dev/null & echo $!
            read word; kill -KILL $! 2>/dev/null; wait
            [ "$word" = keep ] || { sleep 1; rm -rf "$folder"; }"#;
        let mut shell = user
            .command(Path::new("/bin/sh"))
            .args(["-c", SCRIPT, "sh"])
            .arg(folder)
            .args(command)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        BufReader::new(shell.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("the shell answers");
        let pid = line.trim().parse().expect("the shell says the server's process id");
        Self { shell, pid }
    }

    /// The server and all processes it has started.
    fn pids(&self) -> Vec<u32> {
        let mut pids = vec![self.pid];
        let processes = std::fs::read_dir("/proc").expect("a Linux system");
        for pid in processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
            if parent == Some(self.pid) {
                pids.push(pid);
            }
        }
        pids
    }

    /// Stops the server and all that it has started, and waits until the last thread stands: a signal
    /// that was sent has not yet arrived, and a thread that runs on can answer one more request.
    fn freeze(&self) {
        let pids = self.pids();
        signal("-STOP", &pids);
        while !pids.iter().copied().all(stands) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets the server and all that it has started continue.
    fn thaw(&self) {
        signal("-CONT", &self.pids());
    }
}

/// SIGKILL to all of it at once, as when a machine goes down.
impl Drop for Daemon {
    fn drop(&mut self) {
        // It is stopped first, so that it starts no further process.
        signal("-STOP", &[self.pid]);
        while !stands(self.pid) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let pids = self.pids();
        signal("-KILL", &pids);
        // The shell is the server's parent: it is notified of the end at once, while init may take
        // seconds to notice.
        let _ = self.shell.stdin.take().map(|mut shell| shell.write_all(b"keep\n"));
        let _ = self.shell.wait();
        // Until the last of them is gone: a server that starts on the same data would conflict with it.
        while pids.iter().any(|&pid| runs(pid)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn signal(signal: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    let _ = Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status();
}

/// Whether a process has anything open.
fn runs(pid: u32) -> bool {
    state(Path::new(&format!("/proc/{pid}"))).is_some()
}

/// Whether no thread of a process runs: each is stopped or over.
fn stands(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| state(&thread.path()).is_none_or(|state| state == 'T'))
}

/// What a process or a thread does; nothing if it is over, also if it only waits to be asked about.
fn state(folder: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next().filter(|state| !matches!(state, 'Z' | 'X'))
}

/// A name that no other database of this process has.
fn fresh_name() -> String {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    format!("fresh{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// Waits until a server that has been killed can listen on its port again: another program may use it meanwhile.
fn until_free(port: u16) {
    let start = Instant::now();
    while let Err(error) = TcpListener::bind(("127.0.0.1", port)) {
        assert!(start.elapsed() < START_MAX, "port {port}: {error}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Asks until the server answers.
fn until_ready(log: &Path, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        let log = || std::fs::read_to_string(log).unwrap_or_default();
        assert!(start.elapsed() < START_MAX, "the server did not come up:\n{}", log());
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Runs a program to its end and expects it to be content.
fn run(command: &mut Command) {
    let output = command.current_dir("/").output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
