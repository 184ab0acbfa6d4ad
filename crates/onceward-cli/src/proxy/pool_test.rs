use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use onceward::{
    Ask, Caps, Choose, Error, ErrorKind, Fingerprint, Id, Loaded, Onceward, Outcome, Page, Policy, Scan,
    State, Stopped, Store, StoreFuture, Swap, Swapped, Watch,
};
use onceward_stores::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A store that can be out of reach.
struct Away {
    store: MemoryStore,
    away: AtomicBool,
}

impl Store for Away {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        if self.away.load(Ordering::SeqCst) {
            return Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "the store is away")) });
        }
        self.store.swap(batch)
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        self.store.load(ids)
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.store.scan(query)
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        None
    }

    fn caps(&self) -> Caps {
        self.store.caps()
    }
}

/// What the service got, and what became of a request whose lease was alive or over when it was to be sent.
async fn send(over: bool) -> (Vec<u8>, Result<StatusCode, SendFailure>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = vec![0; 4096];
        let bytes = stream.read(&mut got).await.unwrap();
        got.truncate(bytes);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        got
    });
    let store = Arc::new(Away { store: MemoryStore::new(), away: AtomicBool::new(false) });
    let onceward = Onceward::builder(store.clone()).accept_volatile().build().unwrap();
    let pool = Arc::new(Pool::new("127.0.0.1".into(), port, None));
    // Under `hold`, as by default: the work goes on when its lease is over.
    let policy = Policy::http().to_builder().with_lease(Duration::from_millis(50)).build().unwrap();
    let ask = Ask::new(Id::new("scope", "POST /", "key").unwrap(), Fingerprint::of(b""), policy);
    let mut sent = None;
    let work = async |lease: Lease| {
        store.away.store(over, Ordering::SeqCst);
        while over && lease.is_held() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let request = Request::post("/").body(GatewayBody::from(Bytes::from_static(b"charge"))).unwrap();
        let options = SendOptions {
            answer_timeout: Duration::from_secs(30),
            idle_max: None,
            reuse: UpstreamReuse::Never,
        };
        let answer = pool.send(request, options, Some(&lease), None).await;
        sent = Some(answer.map(|response| response.status()));
        store.away.store(false, Ordering::SeqCst);
        Err::<Outcome, _>(Stopped::before_effect("enough"))
    };
    onceward.run(ask, work).await.unwrap_err();
    (service.await.unwrap(), sent.unwrap())
}

#[tokio::test]
async fn nothing_is_sent_once_the_lease_of_the_run_is_over() {
    let (got, sent) = send(false).await;
    assert!(got.starts_with(b"POST / HTTP/1.1") && sent.is_ok(), "{sent:?}");
    let (got, sent) = send(true).await;
    assert!(matches!(&sent, Err(SendFailure::NotSent(why)) if why.contains("lease")), "{sent:?}");
    assert!(got.is_empty(), "the service got {:?}", String::from_utf8_lossy(&got));
}

const OPTIONS: SendOptions =
    SendOptions { answer_timeout: Duration::from_secs(30), idle_max: None, reuse: UpstreamReuse::Safe };

async fn ask(pool: &Arc<Pool>) -> Bytes {
    use http_body_util::BodyExt as _;
    let request = Request::post("/").body(GatewayBody::from(Bytes::from_static(b"charge"))).unwrap();
    let answer = pool.send(request, OPTIONS, None, None).await.unwrap();
    answer.into_body().collect().await.unwrap().to_bytes()
}

/// What a service sends after an answer is nobody's answer, also if it has only just arrived. The test blocks its only
/// thread meanwhile, so that the reactor cannot know it.
#[tokio::test]
async fn bytes_after_an_answer_are_not_the_next_answer() {
    use std::io::{Read, Write};
    use std::sync::mpsc;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (answered, poison) = (mpsc::channel(), mpsc::channel());
    let (go, poisoned) = (answered.1, poison.0);
    std::thread::spawn(move || {
        for (connection, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            // Until the whole request was read.
            let mut got = Vec::new();
            while !got.ends_with(b"charge") {
                let mut some = [0; 4096];
                let read = stream.read(&mut some).unwrap();
                got.extend_from_slice(&some[..read]);
            }
            stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\ntrue").unwrap();
            if connection == 0 {
                go.recv().unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nPOISON").unwrap();
                poisoned.send(stream).unwrap();
            }
        }
    });
    let pool = Arc::new(Pool::new("127.0.0.1".into(), port, None));
    assert_eq!(ask(&pool).await, "true");
    // The connection is idle, and its driver waits.
    tokio::task::yield_now().await;
    answered.0.send(()).unwrap();
    let open = poison.1.recv().unwrap();
    assert_eq!(ask(&pool).await, "true");
    drop(open);
}

/// Without anything odd a connection is used again.
#[tokio::test]
async fn a_silent_connection_is_used_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let service = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for _ in 0..3 {
            let mut got = Vec::new();
            while !got.ends_with(b"charge") {
                stream.read_buf(&mut got).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\ntrue").await.unwrap();
        }
        assert!(tokio::time::timeout(Duration::ZERO, listener.accept()).await.is_err());
    });
    let pool = Arc::new(Pool::new("127.0.0.1".into(), port, None));
    for _ in 0..3 {
        assert_eq!(ask(&pool).await, "true");
    }
    service.await.unwrap();
}
