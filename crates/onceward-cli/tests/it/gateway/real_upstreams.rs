//! Real services behind the gateway: Python's own server, gunicorn, uvicorn, Node.js and nginx. Whatever each makes of
//! HEAD, early answers and answers without a length: no call is made twice, and no wrong answer is stored.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::stage::{Gateway, Home};
use crate::process::{eventually, send};

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

/// nginx in front of Python: a hop that other people's services have too.
fn nginx_config(port: u16, behind: u16) -> String {
    format!(
        "daemon off; pid nginx.pid; error_log stderr crit;\nevents {{}}\nhttp {{ access_log off; \
         client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_http_version 1.1; proxy_pass http://127.0.0.1:{behind}; }} }} }}\n"
    )
}

/// A server process, killed at the end.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // nginx and gunicorn have workers, which end with SIGTERM.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a server; `None`, with a visible message, if it is not installed.
fn server(folder: &Path, command: &[&str], port: u16) -> Option<Server> {
    let installed = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "command -v {} && {0} {}",
            command[0],
            if command[0] == "nginx" { "-v" } else { "--version" }
        ))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !installed.is_ok_and(|status| status.success()) {
        let skipped =
            format!("SKIPPED: {} is not installed, and was NOT tested as an upstream\n", command[0]);
        let _ = std::io::stderr().write_all(skipped.as_bytes());
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
    let home = Home::new();
    let gateway = home.start(&format!("http://127.0.0.1:{port}"));
    for round in 0..20 {
        assert_eq!(send(gateway.address, "HEAD", "/", &[], "").status, 200, "{name}");
        let answer = gateway.charge(&format!("plain{round}"), "{}");
        assert_eq!((answer.status, answer.body.as_str()), (201, "done"), "{name}, round {round}");
        let again = gateway.charge(&format!("plain{round}"), "{}");
        assert_eq!((again.status, again.body.as_str()), (201, "done"), "{name}, round {round}");
        assert_eq!(again.field("idempotent-replayed"), Some("true"), "{name}");
    }
    // An answer without a length may be cut: it is passed on, and no part of it is ever replayed as an answer.
    let first = gateway.post("/unmarked", &[("Idempotency-Key", "unmarked")], "{}");
    assert_eq!(first.status, 201, "{name}");
    assert!(first.body.contains("part"), "{name}: {first:?}");
    let again = gateway.post("/unmarked", &[("Idempotency-Key", "unmarked")], "{}");
    // uvicorn and nginx make chunks of it.
    let is_marked =
        first.field("content-length").is_some() || ["uvicorn", "nginx", "gunicorn"].contains(&name);
    if is_marked && again.status == 201 {
        assert_eq!(again.body, first.body, "{name}");
    } else {
        assert_eq!(again.problem(), (409, "response-not-stored".into()), "{name}");
    }
    // An answer that comes before the body was read. A service that closes at once resets the connection, and its answer
    // may be lost with it: then nobody can tell what became of the request, and the client is told so.
    let early = early_answer(gateway.address);
    assert!(matches!(early, 413 | 504), "{name}: {early}");
    assert!(gateway.charge("after", "{}").status == 201, "{name}: the next request has its own answer");
    check_effects(name, folder, &gateway);
}

/// The status of an early answer to a large upload without a key.
fn early_answer(gateway: SocketAddr) -> u16 {
    let mut socket = TcpStream::connect(gateway).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket
        .write_all(b"POST /early HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 300000\r\n\r\n")
        .unwrap();
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
