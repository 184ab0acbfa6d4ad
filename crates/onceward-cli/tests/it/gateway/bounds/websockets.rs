//! Upgraded connections have the same bounds as others: they count, and a client must read.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::{closed_after, connect_from, stage};
use crate::gateway::stage::{Reply, Service};
use crate::process::eventually;

const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// A service with a silent websocket, and one that sends without end.
fn service() -> Service {
    Service::start(|request| match request.line.split(' ').nth(1) {
        Some("/silent") => Reply::Stall(SWITCHING.into()),
        Some("/flood") => Reply::Stall([SWITCHING.as_bytes(), &vec![b'x'; 64 << 20]].concat()),
        _ => Reply::created("{}"),
    })
}

fn ask(socket: &mut TcpStream, path: &str) {
    let ask = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    socket.write_all(ask.as_bytes()).unwrap();
}

fn websocket(mut socket: TcpStream, path: &str) -> TcpStream {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    ask(&mut socket, path);
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    assert!(said.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&said));
    socket
}

/// The sockets of this machine that belong to a process and have this port, at their own end or at the other one. One that
/// waits to be accepted belongs to none.
fn sockets(address: SocketAddr, column: usize) -> usize {
    let port = format!(":{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let is_open = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Neither a listener nor without a process.
        fields[column].ends_with(&port) && fields[3] != "0A" && fields[9] != "0"
    };
    table.lines().skip(1).filter(is_open).count()
}

/// Those that clients have to the gateway, at its end.
fn from_clients(gateway: SocketAddr) -> usize {
    sockets(gateway, 1)
}

/// Those that the gateway has to the service, at its end.
fn to_service(service: SocketAddr) -> usize {
    sockets(service, 2)
}

#[test]
fn idle_websockets_are_no_more_than_the_bound_of_connections() {
    let service = service();
    let flags = ["--connections-max", "4", "--connections-per-address-max", "4"];
    let (_home, gateway) = stage(&service, "", &flags);
    let connect = || TcpStream::connect(gateway.address).unwrap();
    let mut open: Vec<_> = (0..4).map(|_| websocket(connect(), "/silent")).collect();
    assert_eq!(from_clients(gateway.address), 4);
    // More clients come from addresses that have not used their share.
    let wait_for_place = |number: u8| {
        let mut socket = connect_from([127, 0, 0, number], gateway.address);
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        socket
    };
    let more: Vec<_> = (10..16).map(wait_for_place).collect();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        let count = from_clients(gateway.address);
        // One is accepted, and waits for its place before anything is read from it.
        assert!(count <= 4 + 1, "it has {count} connections");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(service.effects(), 4, "nobody else was served");
    // A place that is given back is used. Those that waited take it from each other as long as nothing was read from them,
    // so that one of them may have to come again.
    drop((open.pop(), more));
    eventually("another client is served", || {
        let mut socket = wait_for_place(40);
        let mut said = String::new();
        socket.read_to_string(&mut said).ok().filter(|_| said.starts_with("HTTP/1.1 201"))
    });
    // Those that stayed were not disturbed.
    for mut socket in open {
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let error = socket.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
}

#[test]
fn one_address_has_a_share_of_the_websockets() {
    let service = service();
    let (_home, gateway) = stage(&service, "", &["--connections-max", "8"]);
    let greedy = |number: usize| {
        let mut socket = connect_from([127, 0, 0, 2], gateway.address);
        if number < 4 {
            return websocket(socket, "/silent");
        }
        ask(&mut socket, "/silent");
        socket
    };
    let mut open: Vec<_> = (0..5).map(greedy).collect();
    assert!(closed_after(open.pop().unwrap()) < Duration::from_secs(10), "half of eight is the share");
    assert!(gateway.metric("onceward_connections_refused_total") >= 1.0);
    websocket(connect_from([127, 0, 0, 3], gateway.address), "/silent");
    // A client that is gone gives its place back.
    drop(open);
    eventually("its share is free", || (from_clients(gateway.address) == 0).then_some(()));
    websocket(connect_from([127, 0, 0, 2], gateway.address), "/silent");
}

#[test]
fn a_websocket_whose_client_does_not_read_is_closed() {
    let service = service();
    let (_home, gateway) = stage(&service, "", &["--write-timeout", "500ms"]);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // Otherwise megabytes are read by the operating system.
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&gateway.address.into()).unwrap();
    let _unread = websocket(socket.into(), "/flood");
    // One that reads nothing because there is nothing is left alone.
    let mut silent = websocket(TcpStream::connect(gateway.address).unwrap(), "/silent");
    eventually("it is closed, on both sides", || {
        (from_clients(gateway.address) == 1 && to_service(service.address) == 1).then_some(())
    });
    assert!(gateway.metric("onceward_connections_closed_total{reason=\"slow_reader\"}") >= 1.0);
    silent.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
