//! Tests of the worker threads.

use std::sync::mpsc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::WorkerThreads;

const REQUESTS: u64 = 500;

/// The `write` system calls of this thread so far. Sockets are written with `send`, which does not count.
fn writes() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").expect("the kernel counts system calls");
    let line = io.lines().find_map(|line| line.strip_prefix("syscw: ")).expect("syscw is there");
    line.parse().expect("a number")
}

/// A request sets a timer and waits for a socket. Without an earlier timer, each would wake its own thread by a `write`.
#[test]
fn a_timer_of_a_request_makes_no_system_call() {
    let threads = WorkerThreads::open().expect("threads");
    let (tell, told) = mpsc::channel();
    threads.start(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        // The answers come from another thread, so that this one sleeps in between.
        let echo = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(address).expect("it listens");
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() {
                stream.write_all(&byte).expect("it reads");
            }
        });
        let (mut stream, _) = listener.accept().await.expect("one connects");
        stream.set_nodelay(true).expect("a TCP option");
        let before = writes();
        for _ in 0..REQUESTS {
            timeout(Duration::from_secs(60), round_trip(&mut stream))
                .await
                .expect("in time")
                .expect("echoed");
            // The thread sleeps without the timer of a request, as between two of them.
            round_trip(&mut stream).await.expect("echoed");
        }
        let after = writes();
        drop(stream);
        echo.join().expect("the echo ends with its connection");
        tell.send(after - before).expect("the test waits");
    });
    let writes = told.recv_timeout(Duration::from_secs(30)).expect("the requests end");
    assert!(writes < REQUESTS / 10, "{writes} writes for {REQUESTS} requests");
}

async fn round_trip(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"x").await?;
    let mut byte = [0];
    stream.read_exact(&mut byte).await?;
    Ok(())
}
