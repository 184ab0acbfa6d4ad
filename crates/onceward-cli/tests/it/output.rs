//! What commands print, and what happens when the reader closes the pipe.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::tempdir;

use crate::process::{Process, eventually, onceward};

/// Reads one line of the output of a command and closes the pipe. Returns the line, standard error and the exit code.
fn first_line(mut command: Command) -> (String, String, Option<i32>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    // A buffer of one byte, so that the rest stays in the pipe.
    let mut output = BufReader::with_capacity(1, child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    drop(output);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    (line, errors, child.wait().unwrap().code())
}

/// Runs a command with a closed pipe as standard output.
fn unread(mut command: Command) -> (String, Option<i32>) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    (String::from_utf8(ended.stderr).unwrap(), ended.status.code())
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    for number in 0..5 {
        let claim = json!({"scope": "s", "operation": "o", "key": number.to_string()});
        assert_eq!(process.post("/v1/claim", &claim).status, 201);
    }
    let admin = format!("http://{}", process.address);
    let config = folder.path().join("onceward.toml");
    std::fs::write(&config, "").unwrap();
    for args in [
        &["receipts", "list", "--admin", &admin][..],
        &["receipts", "list", "--json", "--admin", &admin],
        &["verify", "--list"],
        &["verify", "--url", "http://127.0.0.1:1/", "--dry-run"],
        &["config", "check", config.to_str().unwrap()],
        &["completions", "bash"],
    ] {
        assert_eq!(unread(onceward(args)), (String::new(), Some(141)), "{args:?}");
    }
    for args in [&["--help"][..], &["proxy", "--help"], &["--version"]] {
        assert_eq!(unread(onceward(args)), (String::new(), Some(0)), "{args:?}");
    }
}

#[test]
fn a_demo_whose_reader_is_gone_ends_its_processes_and_removes_its_folder() {
    let folder = tempdir().unwrap();
    let mut demo = onceward(&["demo", "--exit"]);
    demo.env("TMPDIR", folder.path());
    let (line, errors, code) = first_line(demo);
    assert!(line.contains("happens once"), "{line}");
    assert_eq!((errors.as_str(), code), ("", Some(141)));
    assert!(folder.path().read_dir().unwrap().next().is_none());
}

#[test]
fn a_server_continues_when_its_output_is_closed() {
    let folder = tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let store = format!("embedded:{}", folder.path().join("receipts").display());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = onceward(&["serve", "--log", "off", "--admin", &port.to_string(), "--store", &store]);
    let mut server = command.stdout(writer).spawn().unwrap();
    eventually("it listens", || TcpStream::connect(port).ok());
    assert!(server.try_wait().unwrap().is_none());
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = onceward(&["completions", shell]).output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{shell}");
        let script = String::from_utf8(ended.stdout).unwrap();
        for word in ["proxy", "receipts", "verify", "store", "upstream"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let ended = onceward(&["completions", "tcsh"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
}
