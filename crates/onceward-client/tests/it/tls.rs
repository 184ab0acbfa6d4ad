//! `https`: out of the box with the feature `rustls`, and a plain error without it.

#[cfg(feature = "rustls")]
mod with {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use onceward::Effect;
    use onceward_client::ErrorKind;
    use rustls::ServerConfig;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tempfile::TempDir;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsAcceptor;

    use crate::journal::{body, hasty};
    use crate::schedules::patient;
    use crate::server::{Fault, Server};

    /// An authority that vouches for this machine.
    const CERTIFICATES: &str = r"set -e
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 \
  -subj /CN=ca -addext basicConstraints=critical,CA:TRUE
printf 'subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n' > ext
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout here.key -out here.csr -subj /CN=here
openssl x509 -req -in here.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out here.pem";

    fn certificates() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut openssl = Command::new("sh");
        openssl.args(["-c", CERTIFICATES]).current_dir(folder.path()).stderr(Stdio::null());
        assert!(openssl.status().unwrap().success(), "openssl makes certificates");
        folder
    }

    fn acceptor(folder: &Path) -> TlsAcceptor {
        let chain = CertificateDer::from_pem_file(folder.join("here.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(folder.join("here.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Takes TLS off and passes everything on. The URL to send to.
    async fn terminate(acceptor: TlsAcceptor, server: &Server) -> String {
        let to: SocketAddr =
            server.url.strip_prefix("http://").unwrap().strip_suffix("/charges").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that does not trust the certificate goes away.
                    let Ok(mut outside) = acceptor.accept(stream).await else { return };
                    let mut inside = TcpStream::connect(to).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        format!("https://{address}/charges")
    }

    /// In a process of its own, because the system's authorities are named by its environment.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn https_works_out_of_the_box() {
        let folder = certificates();
        let server =
            Server::start(|came| if came.before == 0 { Fault::Status(503) } else { Fault::None }).await;
        let url = terminate(acceptor(folder.path()), &server).await;
        let child = tokio::task::spawn_blocking(move || {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "tls::with::child_sends_over_tls", "--nocapture"])
                .env("ONCEWARD_TEST_TLS", url)
                .env("SSL_CERT_FILE", folder.path().join("ca.pem"))
                .env_remove("SSL_CERT_DIR")
                .output()
                .unwrap()
        });
        let child = child.await.unwrap();
        let said = String::from_utf8_lossy(&[child.stdout, child.stderr].concat()).into_owned();
        assert!(child.status.success() && said.contains("answered 201 after 2 tries"), "{said}");
        let intent = server.intent("i");
        assert_eq!((intent.effects, intent.keys.len()), (1, 1), "{intent:?}");
    }

    /// The other process of the test above. It has installed no cryptography provider.
    #[test]
    fn child_sends_over_tls() {
        let Ok(url) = std::env::var("ONCEWARD_TEST_TLS") else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = crate::builder().with_retry_config(patient()).build().unwrap();
            let answer = client.post(&url).json(&body()).send().await.unwrap();
            println!("answered {} after {} tries", answer.status().as_u16(), answer.report().tries);
        });
        assert!(rustls::crypto::CryptoProvider::get_default().is_none(), "the process keeps its choice");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_without_proof_gets_no_request() {
        let folder = certificates();
        let server = Server::start(|_| Fault::None).await;
        let url = terminate(acceptor(folder.path()), &server).await;
        let client = crate::builder().with_retry_config(hasty()).build().unwrap();
        let error = client.post(&url).json(&body()).send().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::GaveUp, Effect::None), "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
        assert_eq!(server.state().requests, 0);
    }
}

/// `./check` runs this with `--no-default-features`.
#[cfg(not(feature = "rustls"))]
mod without {
    use onceward::Effect;
    use onceward_client::{Error, ErrorKind};
    use tokio::net::TcpListener;

    use crate::journal::body;
    use crate::schedules::patient;

    fn assert_says_why(error: &Error, effect: Effect) {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Invalid, effect), "{error}");
        assert!(error.to_string().contains("no TLS") && error.to_string().contains("`rustls`"), "{error}");
        let report = error.report().unwrap();
        assert_eq!((report.tries, report.failures.len()), (1, 0), "it is not tried again: {report}");
    }

    #[tokio::test]
    async fn https_is_an_error_that_is_not_retried() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/charges", listener.local_addr().unwrap());
        let client = crate::builder().with_retry_config(patient()).build().unwrap();
        for _ in 0..30 {
            // The host has not failed, so its breaker stays closed.
            assert_says_why(&client.post(&url).json(&body()).send().await.unwrap_err(), Effect::None);
        }
        let connected = tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await;
        assert!(connected.is_err(), "nothing was sent");
    }

    /// What the journal holds by then is sent by a build that has TLS.
    #[tokio::test]
    async fn with_a_journal_the_intent_stays_open() {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("embedded:{}", folder.path().join("journal").display());
        let client = crate::builder().with_retry_config(patient()).with_journal(address).build().unwrap();
        let call = client.post("https://127.0.0.1:1/charges").json(&body()).intent("order-7");
        assert_says_why(&call.send().await.unwrap_err(), Effect::None);
        let resumed = client.resume().await.unwrap();
        assert_eq!(resumed.len(), 1);
        // For all that a resumption knows, an earlier process has sent it.
        assert_says_why(resumed[0].result.as_ref().unwrap_err(), Effect::Maybe);
    }
}
