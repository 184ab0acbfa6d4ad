//! Real services behind the gateway: Python's own server, gunicorn, uvicorn, Node.js, PHP, nginx and Caddy. Whatever each
//! makes of HEAD, early answers, answers without a length and connections that it closes while they are idle: no call is made
//! twice, and no wrong answer is stored.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::stage::{Gateway, Home, rounds};
use crate::process::{eventually, send};
use crate::servers::skip;

/// Appends a line to `effects` for each POST that it has read.
const PYTHON: &str = r#"
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def body(self): return self.rfile.read(int(self.headers.get("Content-Length") or 0))
    def do_HEAD(self):
        self.send_response(200); self.send_header("Content-Length", "6"); self.end_headers(); self.wfile.write(b"POISON")
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
    def do_POST(self):
        if self.path == "/early":
            self.send_response(413); self.send_header("Content-Length", "0"); self.send_header("Connection", "close")
            self.end_headers(); self.close_connection = True; return
        self.body()
        with open("effects", "a") as file: file.write(self.headers["Idempotency-Key"] + "\n")
        self.send_response(201)
        if self.path == "/unmarked":
            self.send_header("Connection", "close"); self.end_headers(); self.wfile.write(b"part"); self.close_connection = True
        else:
            self.send_header("Content-Length", "4"); self.end_headers(); self.wfile.write(b"done")
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Service).serve_forever()
"#;

const WSGI: &str = r#"
def app(environ, start_response):
    if environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"] == "/early":
        start_response("413 Too Large", [("Content-Length", "0")]); return [b""]
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    if environ["REQUEST_METHOD"] != "POST":
        start_response("200 OK", [("Content-Length", "6")]); return [b"POISON"]
    with open("effects", "a") as file: file.write(environ["HTTP_IDEMPOTENCY_KEY"] + "\n")
    if environ["PATH_INFO"] == "/unmarked":
        start_response("201 Created", [("Connection", "close")]); return iter([b"pa", b"rt"])
    start_response("201 Created", [("Content-Length", "4")]); return [b"done"]
"#;

const ASGI: &str = r#"
async def app(scope, receive, send):
    if scope["type"] != "http": return
    early = scope["path"] == "/early"
    if not early:
        while (await receive()).get("more_body"): pass
    headers, body, status = [(b"content-length", b"6")], b"POISON", 200
    if scope["method"] == "POST" and early:
        headers, body, status = [(b"content-length", b"0")], b"", 413
    elif scope["method"] == "POST":
        with open("effects", "a") as file: file.write(dict(scope["headers"])[b"idempotency-key"].decode() + "\n")
        headers, body, status = [(b"content-length", b"4")], b"done", 201
        if scope["path"] == "/unmarked": headers, body = [(b"connection", b"close")], b"part"
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"#;

const NODE: &str = r#"
const fs = require("fs");
require("http").createServer((request, response) => {
  if (request.method === "POST" && request.url === "/early") {
    response.writeHead(413, { "Content-Length": "0", "Connection": "close" }); return response.end();
  }
  request.resume().on("end", () => {
    if (request.method !== "POST") { response.writeHead(200, { "Content-Length": "6" }); return response.end("POISON"); }
    fs.appendFileSync("effects", request.headers["idempotency-key"] + "\n");
    if (request.url === "/unmarked") {
      response.useChunkedEncodingByDefault = false; response.writeHead(201, { "Connection": "close" });
      return response.end("part");
    }
    response.writeHead(201, { "Content-Length": "4" }); response.end("done");
  });
}).listen(Number(process.argv[2]), "127.0.0.1");
"#;

/// PHP's own server closes the connection after every answer.
const PHP: &str = r#"<?php
$path = $_SERVER["REQUEST_URI"];
if ($_SERVER["REQUEST_METHOD"] !== "POST") { header("Content-Length: 6"); echo "POISON"; return; }
if ($path === "/early") { http_response_code(413); header("Content-Length: 0"); return; }
file_get_contents("php://input");
file_put_contents("effects", $_SERVER["HTTP_IDEMPOTENCY_KEY"] . "\n", FILE_APPEND | LOCK_EX);
http_response_code(201);
if ($path === "/unmarked") { echo "part"; return; }
header("Content-Length: 4");
echo "done";
"#;

/// nginx in front of Python: a hop that other people's services have too.
fn nginx_config(port: u16, behind: u16) -> String {
    format!(
        "daemon off; pid nginx.pid; error_log stderr crit;\nevents {{}}\nhttp {{ access_log off; \
         client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_http_version 1.1; proxy_pass http://127.0.0.1:{behind}; }} }} }}\n"
    )
}

/// A server process, killed at the end.
pub struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // nginx and gunicorn have workers, which end with SIGTERM.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a server; `None`, with a visible message, if it is not installed.
pub fn server(folder: &Path, command: &[&str], port: u16) -> Option<Server> {
    let installed = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "command -v {} && {0} {}",
            command[0],
            match command[0] {
                "nginx" => "-v",
                "caddy" => "version",
                _ => "--version",
            }
        ))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !installed.is_ok_and(|status| status.success()) {
        skip(command[0]);
        return None;
    }
    let child = Command::new(command[0])
        .args(&command[1..])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server(child);
    eventually("the service listens", || TcpStream::connect(("127.0.0.1", port)).ok());
    Some(server)
}

fn effects(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("effects")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Plays the same requests in front of any of them.
fn check(name: &str, folder: &Path, port: u16) {
    check_with_host(name, folder, port, "pay.example");
}

/// For services that answer only under their own name.
fn check_with_host(name: &str, folder: &Path, port: u16, host: &str) {
    let home = Home::new();
    let gateway = home.start(&format!("http://127.0.0.1:{port}"));
    let charge = |key: &str| gateway.post("/charges", &[("Idempotency-Key", key), ("Host", host)], "{}");
    for round in 0..20 {
        assert_eq!(send(gateway.address, "HEAD", "/", &[("Host", host)], "").status, 200, "{name}");
        let answer = charge(&format!("plain{round}"));
        assert_eq!((answer.status, answer.body.as_str()), (201, "done"), "{name}, round {round}");
        let again = charge(&format!("plain{round}"));
        assert_eq!((again.status, again.body.as_str()), (201, "done"), "{name}, round {round}");
        assert_eq!(again.field("idempotent-replayed"), Some("true"), "{name}");
    }
    // An answer without a length may be cut: it is passed on, and no part of it is ever replayed as an answer.
    let first = gateway.post("/unmarked", &[("Idempotency-Key", "unmarked"), ("Host", host)], "{}");
    assert_eq!(first.status, 201, "{name}");
    assert!(first.body.contains("part"), "{name}: {first:?}");
    let again = gateway.post("/unmarked", &[("Idempotency-Key", "unmarked"), ("Host", host)], "{}");
    // uvicorn and nginx make chunks of it.
    let is_marked =
        first.field("content-length").is_some() || ["uvicorn", "nginx", "gunicorn", "caddy"].contains(&name);
    if is_marked && again.status == 201 {
        assert_eq!(again.body, first.body, "{name}");
    } else {
        assert_eq!(again.problem(), (409, "response-not-stored".into()), "{name}");
    }
    // An answer that comes before the body was read. A service that closes at once resets the connection, and its answer
    // may be lost with it: then nobody can tell what became of the request, and the client is told so.
    // Where another proxy stands between, it may be that one whose connection is reset: it says 502.
    let lost = if ["nginx", "caddy"].contains(&name) { 502 } else { 504 };
    let early = early_answer(gateway.address, host);
    assert!([413, 504, lost].contains(&early), "{name}: {early}");
    // With a key, the answer is kept, or the outcome is unknown; never is it another one.
    let upload = "x".repeat(300_000);
    let keyed = || gateway.post("/early", &[("Idempotency-Key", "early"), ("Host", host)], &upload);
    let (first, again) = (keyed(), keyed());
    match first.status {
        413 => assert_eq!((again.status, again.field("idempotent-replayed")), (413, Some("true")), "{name}"),
        status if [504, lost].contains(&status) => {
            assert_eq!(again.problem(), (409, "outcome-unknown".into()), "{name}");
        }
        other => panic!("{name}: {other}"),
    }
    assert!(charge("after").status == 201, "{name}: the next request has its own answer");
    check_effects(name, folder, &gateway);
}

/// The status of an early answer to a large upload without a key.
fn early_answer(gateway: SocketAddr, host: &str) -> u16 {
    let mut socket = TcpStream::connect(gateway).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = format!(
        "POST /early HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    // The rest may find a closed connection.
    let _ = socket.write_all(&vec![b'x'; 300_000]);
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said);
    String::from_utf8_lossy(&said).split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn check_effects(name: &str, folder: &Path, _gateway: &Gateway) {
    let mut keys = effects(folder);
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), all, "{name}: a call was made twice");
    assert_eq!(keys.len(), 22, "{name}: {keys:?}");
}

#[test]
fn python() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.py"), PYTHON).unwrap();
    let port = free_port();
    let Some(_server) = server(folder.path(), &["python3", "service.py", &port.to_string()], port) else {
        return;
    };
    check("python", folder.path(), port);
}

#[test]
fn gunicorn() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.py"), WSGI).unwrap();
    let port = free_port();
    let bind = format!("127.0.0.1:{port}");
    let command = ["gunicorn", "--bind", &bind, "--worker-class", "gthread", "--threads", "4", "service:app"];
    let Some(_server) = server(folder.path(), &command, port) else { return };
    check("gunicorn", folder.path(), port);
}

#[test]
fn uvicorn() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.py"), ASGI).unwrap();
    let port = free_port();
    let command = ["uvicorn", "--host", "127.0.0.1", "--port", &port.to_string(), "service:app"];
    let Some(_server) = server(folder.path(), &command, port) else { return };
    check("uvicorn", folder.path(), port);
}

#[test]
fn node() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.js"), NODE).unwrap();
    let port = free_port();
    let Some(_server) = server(folder.path(), &["node", "service.js", &port.to_string()], port) else {
        return;
    };
    check("node", folder.path(), port);
}

#[test]
fn nginx() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.py"), PYTHON).unwrap();
    let (port, behind) = (free_port(), free_port());
    fs::write(folder.path().join("nginx.conf"), nginx_config(port, behind)).unwrap();
    let Some(_service) = server(folder.path(), &["python3", "service.py", &behind.to_string()], behind)
    else {
        return;
    };
    let prefix = folder.path().to_str().unwrap().to_owned();
    let command = ["nginx", "-p", &prefix, "-c", "nginx.conf", "-e", "stderr"];
    let Some(_server) = server(folder.path(), &command, port) else { return };
    check("nginx", folder.path(), port);
}

#[test]
fn caddy() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.py"), PYTHON).unwrap();
    let (port, behind) = (free_port(), free_port());
    // Caddy would take the body after HEAD for the next answer, and say 502.
    let config = format!(
        "{{\n admin off\n auto_https off\n}}\nhttp://127.0.0.1:{port} {{\n bind 127.0.0.1\n reverse_proxy 127.0.0.1:{behind} {{\n  transport http {{\n   keepalive off\n  }}\n }}\n}}\n"
    );
    fs::write(folder.path().join("Caddyfile"), config).unwrap();
    let Some(_service) = server(folder.path(), &["python3", "service.py", &behind.to_string()], behind)
    else {
        return;
    };
    let command = ["caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile"];
    let Some(_server) = server(folder.path(), &command, port) else { return };
    check_with_host("caddy", folder.path(), port, &format!("127.0.0.1:{port}"));
}

#[test]
fn php() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.php"), PHP).unwrap();
    let port = free_port();
    let Some(_server) =
        server(folder.path(), &["php", "-S", &format!("127.0.0.1:{port}"), "service.php"], port)
    else {
        return;
    };
    check("php", folder.path(), port);
}

/// A service that closes idle connections, with requests at about that moment. One that meets the end of its connection has
/// an unknown outcome, and is not sent again. `idle` is the time after which the service closes, and `spread` that around it
/// in which requests are sent.
fn check_races(name: &str, folder: &Path, port: u16, (idle, spread): (Duration, Duration), requests: usize) {
    let home = Home::new();
    let gateway = home.start(&format!("http://127.0.0.1:{port}"));
    let (host, mut unknown) = (format!("127.0.0.1:{port}"), 0);
    for round in 0..requests {
        let key = format!("k{round}");
        let charge = || gateway.post("/charges", &[("Idempotency-Key", &key), ("Host", &host)], "{}");
        let answer = charge();
        match answer.status {
            201 => assert_eq!(answer.body, "done", "{name}"),
            // Also a proxy's that met it on its own way.
            502 | 504 => {
                unknown += 1;
                assert_eq!(charge().problem(), (409, "outcome-unknown".into()), "{name}, round {round}");
            }
            other => panic!("{name}, round {round}: {other}"),
        }
        let percent = u32::try_from(round * 61 % 100).unwrap();
        std::thread::sleep(idle.saturating_sub(spread / 2) + spread * percent / 100);
    }
    let mut keys = effects(folder);
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), all, "{name}: a call was made twice");
    assert!(all + unknown >= requests, "{name}: {all} calls and {unknown} unknown outcomes");
    println!("{name}: {all} calls, {unknown} unknown outcomes");
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn idle_connections_of_node() {
    let folder = tempfile::tempdir().unwrap();
    let service = NODE
        .replace("require(\"http\").createServer(", "const server = require(\"http\").createServer(")
        + "server.keepAliveTimeout = 1; server.keepAliveTimeoutBuffer = 0;\n";
    let service = service.replace("}).listen(", "});\nserver.listen(");
    fs::write(folder.path().join("service.js"), service).unwrap();
    let port = free_port();
    let Some(_server) = server(folder.path(), &["node", "service.js", &port.to_string()], port) else {
        return;
    };
    check_races("node", folder.path(), port, (2 * MS, 4 * MS), rounds(300, 3000));
}

#[test]
fn idle_connections_of_python() {
    let folder = tempfile::tempdir().unwrap();
    let service = PYTHON.replace("    protocol_version", "    timeout = 0.02\n    protocol_version");
    fs::write(folder.path().join("service.py"), service).unwrap();
    let port = free_port();
    let Some(_server) = server(folder.path(), &["python3", "service.py", &port.to_string()], port) else {
        return;
    };
    check_races("python", folder.path(), port, (20 * MS, 10 * MS), rounds(50, 1000));
}

#[test]
fn idle_connections_of_gunicorn() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.py"), WSGI).unwrap();
    let port = free_port();
    let bind = format!("127.0.0.1:{port}");
    let keep = ["--keep-alive", "1", "--worker-class", "gthread", "--threads", "4", "service:app"];
    let Some(_server) = server(folder.path(), &[&["gunicorn", "--bind", &bind], &keep[..]].concat(), port)
    else {
        return;
    };
    // It looks for idle connections once a second.
    check_races("gunicorn", folder.path(), port, (1250 * MS, 700 * MS), rounds(3, 100));
}

#[test]
fn idle_connections_of_uvicorn() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.py"), ASGI).unwrap();
    let port = free_port();
    let port_text = port.to_string();
    let command = ["uvicorn", "--host", "127.0.0.1", "--port", &port_text, "--timeout-keep-alive", "1"];
    let Some(_server) = server(folder.path(), &[&command[..], &["service:app"]].concat(), port) else {
        return;
    };
    check_races("uvicorn", folder.path(), port, (1000 * MS, 20 * MS), rounds(3, 100));
}

#[test]
fn idle_connections_of_nginx() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.py"), PYTHON).unwrap();
    let (port, behind) = (free_port(), free_port());
    let config =
        nginx_config(port, behind).replace("access_log off;", "access_log off; keepalive_timeout 20ms;");
    fs::write(folder.path().join("nginx.conf"), config).unwrap();
    let Some(_service) = server(folder.path(), &["python3", "service.py", &behind.to_string()], behind)
    else {
        return;
    };
    let prefix = folder.path().to_str().unwrap().to_owned();
    let command = ["nginx", "-p", &prefix, "-c", "nginx.conf", "-e", "stderr"];
    let Some(_server) = server(folder.path(), &command, port) else { return };
    check_races("nginx", folder.path(), port, (20 * MS, 10 * MS), rounds(50, 1000));
}

#[test]
fn idle_connections_of_caddy() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("service.py"), PYTHON).unwrap();
    let (port, behind) = (free_port(), free_port());
    let config = format!(
        "{{\n admin off\n auto_https off\n servers {{\n  timeouts {{\n   idle 20ms\n  }}\n }}\n}}\n\
         http://127.0.0.1:{port} {{\n bind 127.0.0.1\n reverse_proxy 127.0.0.1:{behind}\n}}\n"
    );
    fs::write(folder.path().join("Caddyfile"), config).unwrap();
    let Some(_service) = server(folder.path(), &["python3", "service.py", &behind.to_string()], behind)
    else {
        return;
    };
    let command = ["caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile"];
    let Some(_server) = server(folder.path(), &command, port) else { return };
    check_races("caddy", folder.path(), port, (20 * MS, 10 * MS), rounds(50, 1000));
}
