//! Other programs: finds them, runs them until they are no longer needed, and measures their memory and disk use.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to come up on a loaded machine.
const START_MAX: Duration = Duration::from_secs(60);

/// Something that a comparison needs is missing.
#[derive(Debug)]
pub struct Missing(pub String);

/// A program from `PATH`, or from `/usr/sbin`, where Debian puts administrative programs.
pub fn program(name: &str, package: &str) -> Result<PathBuf, Missing> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()));
    found.ok_or_else(|| Missing(format!("{name} is not installed (package {package})")))
}

/// A program of this project, built beside this one.
pub fn sibling(name: &str) -> Result<PathBuf, Missing> {
    let ourselves = std::env::current_exe().map_err(|error| Missing(error.to_string()))?;
    let file = ourselves.with_file_name(name);
    if file.is_file() {
        return Ok(file);
    }
    Err(Missing(format!("{} is not built; ./bench builds it", file.display())))
}

/// A server process under a shell that ends it when its standard input closes, also when this process dies.
pub struct Server {
    shell: Child,
    pid: u32,
}

impl Server {
    /// Starts `command`, with its variables, with its output in the file `log`, and waits until `port` answers.
    pub fn start(command: &Command, log: &Path, port: u16) -> Self {
        const SCRIPT: &str = r#"log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!
            read _; kill -TERM $! 2>/dev/null; wait"#;
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(log)
            .arg(command.get_program())
            .args(command.get_args())
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        BufReader::new(shell.stdout.take().expect("it is piped")).read_line(&mut line).expect("it answers");
        let server = Self { shell, pid: line.trim().parse().expect("the shell says the process id") };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || std::fs::read_to_string(log).unwrap_or_default();
            assert!(start.elapsed() < START_MAX, "{command:?} did not come up: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// The resident memory of a process in megabytes; `None` if it is gone.
pub fn resident_megabytes(pid: u32) -> Option<f64> {
    kilobytes(&format!("/proc/{pid}/status"), "VmRSS:").map(|kilobytes| kilobytes / 1024.0)
}

/// The processor time that a process and its children have used, in microseconds, by the kernel's ticks of ten
/// milliseconds; `None` if it is gone.
pub fn family_processor_micros(parent: u32) -> Option<f64> {
    let of = |pid: u32| -> Option<(u32, f64)> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program, in parentheses, may contain anything.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        Some((fields.get(1)?.parse().ok()?, ticks * 1e4))
    };
    let own = of(parent)?.1;
    let processes = std::fs::read_dir("/proc").ok()?;
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Some(own + pids.filter_map(of).filter(|child| child.0 == parent).map(|child| child.1).sum::<f64>())
}

/// The memory of a process and its children in megabytes, what they share counted once; `None` if it
/// may not be read.
pub fn family_megabytes(parent: u32) -> Option<f64> {
    let mut sum = kilobytes(&format!("/proc/{parent}/smaps_rollup"), "Pss:")?;
    let processes = std::fs::read_dir("/proc").ok()?;
    for pid in processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let its_parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        if its_parent == Some(parent) {
            sum += kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:").unwrap_or(0.0);
        }
    }
    Some(sum / 1024.0)
}

fn kilobytes(file: &str, field: &str) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok())
}

/// What a folder takes on disk, in bytes.
pub fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => folder_bytes(&entry.path()),
            // Blocks in use, not the length: journals are preallocated.
            Ok(data) => std::os::unix::fs::MetadataExt::blocks(&data) * 512,
            Err(_) => 0,
        })
        .sum()
}
