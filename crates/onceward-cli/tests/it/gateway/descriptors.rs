//! Low limits on file descriptors: silent connections do not use them up, and honest clients go on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use super::stage::{Gateway, Home, Service};
use crate::process::eventually;

/// A gateway whose limits on file descriptors are set by this command of the shell.
fn start(home: &Home, service: &Service, limit: &str) -> Gateway {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_onceward"), "proxy"]);
    let store = format!("embedded:{}", home.folder.path().join("receipts").display());
    command.args(["--upstream", &service.url(), "--store", &store, "--log", "error", "--drain-delay", "0s"]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--head-timeout", "120s"]);
    command.args(["--connections-per-address-max", "10000"]);
    Gateway::spawn(command)
}

fn silent(gateway: &Gateway, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(gateway.address).unwrap()).collect()
}

/// Requests with and without a key, each on a connection of its own.
fn honest_clients_go_on(gateway: &Gateway) {
    let began = Instant::now();
    for key in 0..5 {
        assert_eq!(gateway.charge(&format!("k{key}"), "{}").status, 201);
        assert_eq!(gateway.get("/").status, 201);
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn the_limit_is_raised_to_what_the_process_may_have() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = start(&home, &service, "ulimit -S -n 100");
    let _silent = silent(&gateway, 200);
    eventually("all are open", || (gateway.metric("onceward_connections") >= 200.0).then_some(()));
    honest_clients_go_on(&gateway);
}

#[test]
fn silent_connections_within_a_low_limit_keep_nobody_out() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = start(&home, &service, "ulimit -n 160");
    let _silent = silent(&gateway, 400);
    honest_clients_go_on(&gateway);
    assert!(gateway.metric("onceward_connections") <= 40.0, "a quarter: half is for everything else");
    assert!(gateway.metric("onceward_connections_closed_total{reason=\"evicted\"}") > 0.0);
}

/// Whatever else has used them up.
#[test]
fn without_any_descriptor_left_the_oldest_idle_connection_is_closed() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = start(&home, &service, "ulimit -n 4096");
    let folder = format!("/proc/{}/fd", gateway.child.id());
    let open = std::fs::read_dir(folder).unwrap().count();
    let (pid, limit) = (gateway.child.id().to_string(), format!("--nofile={}", open + 40));
    let lowered = Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap();
    assert!(lowered.success());
    let silent = silent(&gateway, 100);
    // On a kept connection: the service may be out of reach while the last descriptors are taken.
    let answered = eventually("an honest client is answered", || {
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).ok()?;
        said.starts_with("HTTP/1.1 ").then_some(said)
    });
    assert!(!answered.is_empty());
    // The metric is read over a connection of its own, which needs a descriptor too.
    drop(silent);
    assert!(gateway.metric("onceward_connections_closed_total{reason=\"evicted\"}") > 0.0);
}
