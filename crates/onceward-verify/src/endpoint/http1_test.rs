//! Reads answers in every common framing, through a real socket.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Answer, Request, hold};
use crate::endpoint::place::Place;
use crate::endpoint::tls::Trust;

/// What is made of these bytes when a server answers with them and closes.
async fn read(bytes: &'static [u8]) -> io::Result<Answer> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\nhello") {
            stream.read_buf(&mut request).await.unwrap();
        }
        stream.write_all(bytes).await.unwrap();
    });
    let request = Request {
        place: Place::parse(&url, &Trust::new(None)).unwrap(),
        method: "POST".into(),
        fields: vec![],
        body: "hello".into(),
        key: String::new(),
        label: String::new(),
    };
    let held = hold(&request).await?;
    held.release()?;
    held.answer().await
}

#[tokio::test]
async fn every_framing_is_read() {
    for bytes in [
        &b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-A: 1\r\n\r\nhi"[..],
        b"HTTP/1.1 201 Created\r\nX-A: 1\r\n\r\nhi",
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n1;x=y\r\nh\r\n1\r\ni\r\n0\r\nT: u\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 2\r\nx-a:  1 \r\n\r\nhi",
    ] {
        let answer = read(bytes).await.unwrap();
        assert_eq!((answer.status, &answer.body[..], answer.field("x-a")), (201, &b"hi"[..], Some("1")));
    }
    let empty = read(b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n").await.unwrap();
    assert_eq!((empty.status, empty.body.len()), (204, 0));
}

#[tokio::test]
async fn half_an_answer_is_none() {
    for bytes in [
        &b""[..],
        b"HTTP/1.1 201 Crea",
        b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nhi",
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n",
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nh\r\n",
        b"SSH-2.0-server\r\n\r\n",
    ] {
        assert!(read(bytes).await.is_err(), "{} was read", String::from_utf8_lossy(bytes));
    }
}
