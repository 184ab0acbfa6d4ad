//! Checks a service behind a real TLS terminator, with certificates made by openssl.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::Trust;
use crate::endpoint::message::Request;
use crate::endpoint::place::Place;
use crate::endpoint::{Check, Effects, ErrorKind, HttpVersion, http1, http2};
use crate::zoo::start::RunningService;
use crate::zoo::table;

/// Two authorities; the first vouches for this machine and for somebody else.
const CERTIFICATES: &str = r"set -e
for name in ca stranger; do
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $name.key -out $name.pem -days 2 \
    -subj /CN=$name -addext basicConstraints=critical,CA:TRUE
done
issue() {
  printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\n' $2 > ext
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout $1.key -out $1.csr -subj /CN=$1
  openssl x509 -req -in $1.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out $1.pem
}
issue here IP:127.0.0.1
issue elsewhere DNS:payments.example";

fn certificates() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut openssl = Command::new("sh");
    openssl.args(["-c", CERTIFICATES]).current_dir(folder.path()).stderr(Stdio::null());
    assert!(openssl.status().unwrap().success(), "openssl makes certificates");
    folder
}

fn acceptor(folder: &Path, name: &str, protocols: &[&str]) -> TlsAcceptor {
    let chain = CertificateDer::from_pem_file(folder.join(format!("{name}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// Takes TLS off and passes everything on.
async fn terminate(acceptor: TlsAcceptor, to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that rejects the certificate hangs up.
                let Ok(mut outside) = acceptor.accept(stream).await else { return };
                let mut inside = TcpStream::connect(to).await.unwrap();
                inside.set_nodelay(true).unwrap();
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    address
}

/// A check of a service behind a terminator with this certificate.
async fn behind_tls(name: &str, folder: &Path, certificate: &str) -> (RunningService, Check) {
    let running = RunningService::start(table::named(name).unwrap()).await.unwrap();
    let service = running.check.url.strip_prefix("http://").unwrap().strip_suffix("/charges").unwrap();
    let both = acceptor(folder, certificate, &["h2", "http/1.1"]);
    let address = terminate(both, service.parse().unwrap()).await;
    let mut check = running.check.clone();
    check.url = format!("https://{address}/charges");
    check.effects = Effects::url(format!("https://{address}/effects"));
    check.other_url = Some(format!("https://{address}/refunds"));
    check.also_urls.clear();
    check.authorities = Some(folder.join("ca.pem"));
    (running, check)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_tls_the_verdicts_are_the_same() {
    let folder = certificates();
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let (_right, mut check) = behind_tls("waits", folder.path(), "here").await;
        (check.version, check.clients) = (version, 40);
        check.scenarios =
            ["simultaneous-duplicates", "retry-while-running", "retry-after-hang-up", "other-path"]
                .map(str::to_owned)
                .into();
        let report = check.run().await.unwrap();
        report.assert_holds();
        assert_eq!(report.spread.requests_max, 40, "{version:?}");
        let (_broken, mut check) = behind_tls("check-then-write", folder.path(), "here").await;
        check.version = version;
        check.scenarios = vec!["simultaneous-duplicates".to_owned()];
        assert_eq!(check.run().await.unwrap().exit_code(), 1, "{version:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_believed_without_proof() {
    let folder = certificates();
    let (_cage, mut check) = behind_tls("waits", folder.path(), "here").await;
    for stranger in [None, Some(folder.path().join("stranger.pem"))] {
        check.authorities = stranger;
        let error = check.run().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("not believed") && error.to_string().contains("--ca"), "{error}");
    }
    let (_cage, check) = behind_tls("waits", folder.path(), "elsewhere").await;
    let error = check.run().await.unwrap_err();
    assert!(error.to_string().contains("not believed"), "{error}");
}

#[tokio::test]
async fn authorities_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut check = Check::new("https://127.0.0.1:1/");
    std::fs::write(folder.path().join("empty"), "").unwrap();
    std::fs::write(folder.path().join("broken"), "-----BEGIN CERTIFICATE-----\nAA").unwrap();
    for name in ["missing", "empty", "broken"] {
        check.authorities = Some(folder.path().join(name));
        let error = check.run().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}: {error}");
    }
}

#[tokio::test]
async fn a_server_without_http_2_is_told_from_one_with_it() {
    let folder = certificates();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let request = request(listener.local_addr().unwrap(), folder.path());
    let old = acceptor(folder.path(), "here", &[]);
    tokio::spawn(async move { old.accept(listener.accept().await.unwrap().0).await });
    let error = http2::hold(&[&request]).await.unwrap_err();
    assert!(error.to_string().contains("HTTP/2"), "{error}");
}

/// The server has all but the last byte before the release, and the last one not before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_record_is_held_back() {
    let folder = certificates();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let request = request(listener.local_addr().unwrap(), folder.path());
    let acceptor = acceptor(folder.path(), "here", &["http/1.1"]);
    let (waiting, is_waiting) = tokio::sync::oneshot::channel();
    let server = tokio::spawn(async move {
        let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"\r\n\r\nhell") {
            stream.read_buf(&mut got).await.unwrap();
        }
        waiting.send(()).unwrap();
        let last = stream.read_u8().await.unwrap();
        let at = Instant::now();
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        (last, at)
    });
    let held = http1::hold(&request).await.unwrap();
    is_waiting.await.unwrap();
    let released = held.release().unwrap();
    assert_eq!(held.answer().await.unwrap().status, 204);
    let (last, at) = server.await.unwrap();
    assert_eq!(last, b'o');
    assert!(at >= released, "it was there before");
}

fn request(address: SocketAddr, folder: &Path) -> Request {
    let trust = Trust::new(Some(folder.join("ca.pem")));
    Request {
        place: Place::parse(&format!("https://{address}/"), &trust).unwrap(),
        method: "POST".into(),
        fields: vec![],
        body: "hello".into(),
        key: String::new(),
        label: String::new(),
    }
}
