//! Connections that are silent, that send slowly, that do not read: each is ended by a deadline of its own kind, and
//! other clients go on meanwhile.

mod websockets;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::certificates;
use super::stage::{Gateway, Home, Reply, Service};
use crate::process::{Process, eventually, send};

fn stage(service: &Service, config: &str, flags: &[&str]) -> (Home, Gateway) {
    let home = Home::new();
    home.write_config(config);
    let gateway = home.start_with(&service.url(), flags);
    (home, gateway)
}

/// A connection from this local address.
fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((IpAddr::from(from), 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// How long the other side keeps the connection open.
fn closed_after(mut socket: TcpStream) -> Duration {
    let began = Instant::now();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    let read = socket.read_to_end(&mut rest);
    assert!(!matches!(&read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "it stays open");
    began.elapsed()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[test]
fn a_silent_connection_is_closed_whatever_it_began_with() {
    let service = Service::charging();
    let (home, gateway) = stage(&service, "", &["--head-timeout", "300ms", "--idle-timeout", "500ms"]);
    let admin = Process::serve(home.folder.path().join("admin").as_path());
    for (listener, at_most) in [(gateway.address, 10), (admin.address, 30)] {
        thread::scope(|scope| {
            for begin in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", PREFACE, b"GET / HTTP/1.1\r\nHost: a"] {
                scope.spawn(move || {
                    let mut socket = TcpStream::connect(listener).unwrap();
                    socket.write_all(begin).unwrap();
                    let after = closed_after(socket);
                    assert!(after < Duration::from_secs(at_most), "{begin:?}: {after:?}");
                });
            }
        });
    }
    // After a first request the connection may be idle for longer.
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(closed_after(socket) >= Duration::from_millis(500));
    assert!(gateway.metric("onceward_connections_closed_total{reason=\"slow_head\"}") >= 5.0);
}

/// The deadline of the first head covers the handshake, and begins again after it.
#[test]
fn a_silent_tls_handshake_is_closed() {
    let (home, service) = (Home::new(), Service::charging());
    certificates::make(home.folder.path());
    let file = |name: &str| home.folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (file("server.pem"), file("server.key"));
    let flags = ["--tls-cert", &certificate, "--tls-key", &key, "--head-timeout", "500ms"];
    let gateway = home.start_with(&service.url(), &flags);
    let at_most = Duration::from_secs(10);
    thread::scope(|scope| {
        // Nothing, the beginning of a record, a record of a handshake message that does not end.
        for begin in [&b""[..], &[22, 3], &[22, 3, 1, 0, 6, 1, 0, 1, 252, 3, 3]] {
            let mut socket = TcpStream::connect(gateway.address).unwrap();
            scope.spawn(move || {
                socket.write_all(begin).unwrap();
                let after = closed_after(socket);
                assert!(after < at_most, "{begin:?}: {after:?}");
            });
        }
        scope.spawn(|| {
            let mut client = Command::new("openssl");
            client.args(["s_client", "-quiet", "-connect", &gateway.address.to_string()]);
            // Its input stays open, and has nothing.
            let client = client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            let (began, mut client) = (Instant::now(), client.spawn().unwrap());
            eventually("it is closed after a whole handshake", || client.try_wait().unwrap());
            assert!(began.elapsed() < at_most, "{:?}", began.elapsed());
        });
    });
    assert!(gateway.metric("onceward_connections_closed_total{reason=\"slow_head\"}") >= 4.0);
    assert!(gateway.metric("onceward_connections") < 1.0);
}

#[test]
fn silent_connections_do_not_keep_clients_out() {
    let service = Service::charging();
    let flags = ["--connections-max", "20", "--connections-per-address-max", "20", "--head-timeout", "60s"];
    let (_home, gateway) = stage(&service, "", &flags);
    let _silent: Vec<_> = (0..60).map(|_| TcpStream::connect(gateway.address).unwrap()).collect();
    let began = Instant::now();
    for key in ["a", "b", "c"] {
        assert_eq!(gateway.charge(key, "{}").status, 201);
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(gateway.metric("onceward_connections_closed_total{reason=\"evicted\"}") > 0.0);
}

#[test]
fn one_address_has_a_share_of_the_connections() {
    let (service, release) = super::stop::gated();
    let flags = ["--connections-max", "8"];
    let (_home, gateway) = stage(&service, "", &flags);
    let busy = |from| {
        let mut socket = connect_from(from, gateway.address);
        let _ = socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        socket
    };
    let mut greedy: Vec<_> = (0..4).map(|_| busy([127, 0, 0, 2])).collect();
    eventually("they are all in progress", || (service.effects() == 4).then_some(()));
    // Half of eight is the share; the next one is closed.
    let refused = busy([127, 0, 0, 2]);
    assert!(closed_after(refused) < Duration::from_secs(10));
    let mut other = busy([127, 0, 0, 3]);
    eventually("another address is served", || (service.effects() == 5).then_some(()));
    for _ in 0..5 {
        release.send(()).unwrap();
    }
    let mut answer = [0; 12];
    other.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
    greedy[0].read_exact(&mut answer).unwrap();
    assert!(gateway.metric("onceward_connections_refused_total") >= 1.0);
}

#[test]
fn a_trusted_proxy_is_not_limited_to_a_share() {
    let service = Service::charging();
    let flags = ["--connections-per-address-max", "1", "--trusted-proxies", "127.0.0.0/8"];
    let (_home, gateway) = stage(&service, "", &flags);
    let mut open = Vec::new();
    for _ in 0..5 {
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).unwrap();
        open.push(socket);
    }
    assert_eq!(service.effects(), 5);
}

#[test]
fn what_was_sent_early_buys_no_long_silence() {
    let service = Service::charging();
    let (_home, gateway) = stage(&service, "", &["--body-grace", "500ms"]);
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    let head = "POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: a\r\nContent-Length: 262144\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(&vec![b'x'; 262_143]).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let began = Instant::now();
    let mut said = [0; 12];
    socket.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"HTTP/1.1 408");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(service.effects(), 0);
}

#[test]
fn one_address_has_a_share_of_the_memory_for_bodies() {
    let service = Service::charging();
    let flags = ["--body-bytes-max", "400KiB", "--body-grace", "60s"];
    let (_home, gateway) = stage(&service, "", &flags);
    let head = |key: &str| {
        format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\nConnection: close\r\nContent-Length: 150000\r\n\r\n"
        )
    };
    let ask = |from: [u8; 4], key: &str| {
        let mut socket = connect_from(from, gateway.address);
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(head(key).as_bytes()).unwrap();
        // A refusal may come before all was sent.
        let _ = socket.write_all(&vec![b'x'; 150_000]);
        let mut said = [0; 12];
        socket.read_exact(&mut said).unwrap();
        String::from_utf8_lossy(&said).into_owned()
    };
    let _slow = eventually("its share is used", || {
        // It holds 150,000 of the 204,800 bytes that are its share, unless the other request was quicker.
        let mut slow = connect_from([127, 0, 0, 2], gateway.address);
        slow.write_all(head("slow").as_bytes()).unwrap();
        slow.write_all(&vec![b'x'; 149_999]).unwrap();
        let key = format!("k{}", service.effects());
        (ask([127, 0, 0, 2], &key) == "HTTP/1.1 429").then_some(slow)
    });
    let before = service.effects();
    assert_eq!(ask([127, 0, 0, 3], "other"), "HTTP/1.1 201");
    assert_eq!(service.effects(), before + 1);
}

/// A scope is what a client says of itself: who invents credentials has as many as it likes. Its address is one.
#[test]
fn invented_credentials_take_no_more_than_the_share_of_their_address() {
    let (service, go) = super::stop::gated();
    let (_home, gateway) = stage(&service, "", &["--in-flight-max", "8"]);
    let begin = |from: [u8; 4], number: usize| {
        let mut socket = connect_from(from, gateway.address);
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let ask = format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIdempotency-Key: k{number}\r\n\
             Authorization: Bearer invented-{number}\r\nX-Api-Key: {number}\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        socket.write_all(ask.as_bytes()).unwrap();
        socket
    };
    let answer = |mut socket: TcpStream| {
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        said
    };
    // The default: half of what may run at all.
    let mut running: Vec<_> = (0..4).map(|number| begin([127, 0, 0, 2], number)).collect();
    eventually("its share runs", || (service.effects() == 4).then_some(()));
    for number in 4..20 {
        let said = answer(begin([127, 0, 0, 2], number));
        assert!(said.starts_with("HTTP/1.1 429") && said.contains("quota-exceeded"), "{said}");
    }
    // The rest is for others.
    running.extend((20..24).map(|number| begin([127, 0, 0, 3], number)));
    eventually("another address runs", || (service.effects() == 8).then_some(()));
    for _ in &running {
        go.send(()).unwrap();
    }
    for socket in running {
        let said = answer(socket);
        assert!(said.starts_with("HTTP/1.1 201"), "{said}");
    }
    // What has ended counts no more.
    go.send(()).unwrap();
    let said = answer(begin([127, 0, 0, 2], 24));
    assert!(said.starts_with("HTTP/1.1 201"), "{said}");
    assert_eq!(service.effects(), 9);
}

/// Each new key is a receipt until its retention ends: what one address adds is bounded, whatever credentials it invents.
#[test]
fn invented_credentials_add_no_more_receipts_than_their_address_may() {
    let service = Service::charging();
    let (_home, gateway) = stage(&service, "new_keys_per_address_max = \"3/1h\"", &[]);
    let ask = |from: [u8; 4], who: &str, key: &str| {
        let mut socket = connect_from(from, gateway.address);
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let ask = format!(
            "POST /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIdempotency-Key: {key}\r\n\
             Authorization: Bearer {who}\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        socket.write_all(ask.as_bytes()).unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        said
    };
    let (greedy, other) = ([127, 0, 0, 2], [127, 0, 0, 3]);
    for number in 0..3 {
        let said = ask(greedy, &format!("invented-{number}"), &format!("k{number}"));
        assert!(said.starts_with("HTTP/1.1 201"), "{said}");
    }
    let claims = gateway.metric("onceward_claims_total");
    for number in 3..6 {
        let said = ask(greedy, &format!("invented-{number}"), &format!("k{number}"));
        assert!(said.starts_with("HTTP/1.1 429") && said.contains("quota-exceeded"), "{said}");
        let said = said.to_ascii_lowercase();
        let after = said.split("retry-after: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        assert!(after.unwrap().parse::<u64>().unwrap() > 1_000, "one is back after twenty minutes: {said}");
    }
    // Nothing was claimed for them.
    assert!(gateway.metric("onceward_claims_total") < claims + 0.5);
    assert_eq!(service.effects(), 3);
    let replay = ask(greedy, "invented-0", "k0");
    assert!(replay.starts_with("HTTP/1.1 201") && replay.contains("dempotent-"), "{replay}");
    assert!(ask(other, "invented-3", "k3").starts_with("HTTP/1.1 201"));
    assert_eq!(service.effects(), 4);
    let metric = |name: &str| gateway.metric(&format!("onceward_http_new_keys_{name}{{by=\"address\"}}"));
    assert!((metric("taken_most") - 3.0).abs() < 0.5 && (metric("refused_total") - 3.0).abs() < 0.5);
}

/// A service whose answers are too large to be kept.
fn large() -> Service {
    Service::start(|_| Reply::Answer(200, "x".repeat(16 << 20)))
}

#[test]
fn a_client_that_does_not_read_holds_nothing_for_long() {
    let service = large();
    let flags = ["--write-timeout", "500ms", "--in-flight-max", "2", "--in-flight-per-address-max", "2"];
    let (_home, gateway) = stage(&service, "", &flags);
    let mut unread = Vec::new();
    for key in ["a", "b"] {
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        let ask =
            format!("POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\nContent-Length: 0\r\n\r\n");
        socket.write_all(ask.as_bytes()).unwrap();
        unread.push(socket);
    }
    eventually("both were sent", || (service.effects() == 2).then_some(()));
    // The receipts are written although nobody has read the answers.
    let again = eventually("the receipt is written", || {
        let ask = "POST /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIdempotency-Key: a\r\nContent-Length: 0\r\n\r\n";
        let said = gateway.raw(ask.as_bytes());
        said.contains("response-not-stored").then_some(said)
    });
    assert!(again.contains("\"original_status\":200"), "{again}");
    eventually("both clients are disconnected", || {
        let closed = gateway.metric("onceward_connections_closed_total{reason=\"slow_reader\"}");
        (closed >= 2.0).then_some(())
    });
    assert_eq!(service.effects(), 2);
}

/// It always reads a little, so its connection is never idle, and its key would be held for hours.
#[test]
fn a_client_that_reads_a_trickle_of_a_guarded_answer_holds_nothing_for_long() {
    let service = large();
    let flags = ["--write-timeout", "500ms", "--in-flight-max", "1"];
    let (_home, gateway) = stage(&service, "", &flags);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // Otherwise megabytes are read by the operating system.
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&gateway.address.into()).unwrap();
    let mut socket = TcpStream::from(socket);
    socket
        .write_all(b"POST /c HTTP/1.1\r\nHost: a\r\nIdempotency-Key: a\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    let reader = thread::spawn(move || {
        let mut buffer = [0; 512];
        // Ten times the rate below which a connection is closed.
        while socket.read(&mut buffer).is_ok_and(|read| read > 0) {
            thread::sleep(Duration::from_millis(200));
        }
    });
    eventually("it was sent", || (service.effects() == 1).then_some(()));
    let began = Instant::now();
    eventually("the receipt is written, and the only run slot is free", || {
        (gateway.charge("b", "{}").status == 200).then_some(())
    });
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let again = gateway.post("/c", &[("Idempotency-Key", "a"), ("Host", "a")], "");
    assert!(again.is_problem("response-not-stored") || again.is_problem("key-reused"), "{again:?}");
    drop(gateway);
    reader.join().unwrap();
}

#[test]
fn a_client_that_reads_slowly_gets_its_answer() {
    let service = Service::start(|_| Reply::Answer(200, "x".repeat(4 << 20)));
    let (_home, gateway) = stage(&service, "", &["--write-timeout", "1s", "--idle-timeout", "1s"]);
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut read = 0;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match socket.read(&mut buffer).unwrap() {
            0 => break,
            count => read += count,
        }
        thread::sleep(Duration::from_millis(30));
    }
    assert!(read > 4 << 20, "{read}");
}

#[test]
fn an_upload_may_take_longer_than_an_answer() {
    let service = Service::charging();
    let (_home, gateway) = stage(&service, "[defaults]\nanswer_timeout = \"500ms\"", &[]);
    let mut socket = TcpStream::connect(gateway.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
        .write_all(b"PUT /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20\r\n\r\n")
        .unwrap();
    for _ in 0..20 {
        socket.write_all(b"x").unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 201"), "{said}");
    assert_eq!(service.received()[0].body.len(), 20);
}

#[test]
fn a_service_that_does_not_answer_after_an_upload_times_out() {
    let service = Service::start(|_| Reply::Stall(Vec::new()));
    let (_home, gateway) = stage(&service, "[defaults]\nanswer_timeout = \"300ms\"", &[]);
    let answer = send(gateway.address, "PUT", "/file", &[], "12345");
    assert_eq!(answer.problem(), (504, "upstream-timeout".into()));
}

#[test]
fn a_client_may_close_its_sending_side_and_still_gets_its_answer() {
    let service = Service::charging();
    let (_home, gateway) = stage(&service, "", &[]);
    for key in ["Idempotency-Key: a\r\n", ""] {
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        let ask = format!("POST /c HTTP/1.1\r\nHost: a\r\n{key}Content-Length: 2\r\n\r\n{{}}");
        socket.write_all(ask.as_bytes()).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 201"), "{said:?}");
    }
}
