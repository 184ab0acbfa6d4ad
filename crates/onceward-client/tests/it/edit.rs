//! Edits with `If-Match`, against a server with one document that others edit too.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use onceward_client::{Client, Edited, ErrorKind};

use crate::schedules::patient;

/// What happens around one `PUT`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Around {
    Nothing,
    /// Somebody else edits the document just before.
    OtherBefore,
    /// It takes effect, and the connection is closed before the answer.
    AnswerLost,
}

#[derive(Default)]
struct Document {
    version: u64,
    body: String,
    /// What `If-Match` of each `PUT` said.
    puts: Vec<String>,
    etag: &'static str,
}

struct Server {
    url: String,
    document: Arc<Mutex<Document>>,
}

/// A server without receipts: it compares the tag with the version, and writes.
fn serve(etag: &'static str, script: impl Fn(usize) -> Around + Send + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/document", listener.local_addr().unwrap());
    let document =
        Arc::new(Mutex::new(Document { version: 1, body: "start".into(), etag, ..Document::default() }));
    let shared = document.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            answer(&stream, &shared, &script);
        }
    });
    Server { url, document }
}

fn answer(
    mut stream: &TcpStream,
    document: &Mutex<Document>,
    script: &impl Fn(usize) -> Around,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut line, mut length, mut expected) = (String::new(), 0, String::new());
    reader.read_line(&mut line).ok()?;
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let Some((name, value)) = field.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "if-match" => value.clone_into(&mut expected),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut document = document.lock().unwrap();
    let mut status = "200 Fine";
    if line.starts_with("PUT") {
        let around = script(document.puts.len());
        document.puts.push(expected.clone());
        if around == Around::OtherBefore {
            document.version += 1;
            document.body = format!("other {}", document.version);
        }
        if expected == format!("\"{}\"", document.version) {
            document.version += 1;
            document.body = String::from_utf8(body).ok()?;
        } else {
            status = "412 Precondition Failed";
        }
        if around == Around::AnswerLost {
            return None;
        }
    }
    let Document { version, body, etag, .. } = &*document;
    let length = body.len();
    let tag = etag.replace('N', &version.to_string());
    let head = format!("HTTP/1.1 {status}\r\n{tag}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all((head + body).as_bytes()).ok()
}

const STRONG: &str = "ETag: \"N\"\r\n";

fn client() -> Client {
    crate::builder().with_retry_config(patient()).build().unwrap()
}

async fn edit(
    server: &Server,
    merges_max: u32,
    merge: impl FnMut(onceward_client::EditConflict<'_>) -> Option<Bytes>,
) -> Result<Edited, onceward_client::Error> {
    let client = client();
    let seen = client.get(&server.url).send().await.unwrap();
    client.edit(&server.url).with_merges_max(merges_max).save(&seen, "mine", merge).await
}

#[tokio::test]
async fn an_edit_of_the_version_that_was_seen_is_saved_at_once() {
    let server = serve(STRONG, |_| Around::Nothing);
    let edited = edit(&server, 3, |_| panic!("there is no conflict")).await.unwrap();
    let Edited::Answered(answer) = edited else { panic!("{edited:?}") };
    assert_eq!(answer.entity_tag().unwrap().to_string(), "\"2\"");
    assert_eq!(server.document.lock().unwrap().puts, ["\"1\""]);
}

#[tokio::test]
async fn a_conflict_hands_both_versions_to_the_hook_and_saves_what_it_returns() {
    let server = serve(STRONG, |put| if put < 2 { Around::OtherBefore } else { Around::Nothing });
    let mut seen = Vec::new();
    let edited = edit(&server, 3, |conflict| {
        let mine = String::from_utf8_lossy(conflict.mine).into_owned();
        seen.push((conflict.base.text().into_owned(), mine, conflict.theirs.text().into_owned()));
        Some(format!("mine and {}", conflict.theirs.text()).into())
    });
    let edited = edited.await.unwrap();
    assert!(matches!(&edited, Edited::Answered(answer) if answer.status() == 200), "{edited:?}");
    let texts = |base: &str, mine: &str, theirs: &str| (base.to_owned(), mine.to_owned(), theirs.to_owned());
    assert_eq!(seen, [texts("start", "mine", "other 2"), texts("other 2", "mine and other 2", "other 3")]);
    let document = server.document.lock().unwrap();
    assert_eq!((document.body.as_str(), document.puts.len()), ("mine and other 3", 3));
}

#[tokio::test]
async fn merges_end_at_the_bound_or_when_the_hook_declines() {
    for (merges_max, declines, calls) in [(0, false, 0), (2, false, 2), (5, true, 1)] {
        let server = serve(STRONG, |_| Around::OtherBefore);
        let mut called = 0;
        let edited = edit(&server, merges_max, |_| {
            called += 1;
            (!declines).then(|| "again".into())
        });
        let edited = edited.await.unwrap();
        assert!(
            matches!(&edited, Edited::Conflict(theirs) if theirs.text().starts_with("other")),
            "{edited:?}"
        );
        assert_eq!(called, calls, "at most {merges_max}");
        assert!(server.document.lock().unwrap().body.starts_with("other"), "nothing was overwritten");
    }
}

#[tokio::test]
async fn a_lost_answer_is_no_conflict() {
    let server = serve(STRONG, |put| if put == 0 { Around::AnswerLost } else { Around::Nothing });
    let edited = edit(&server, 3, |_| panic!("it is our own version")).await.unwrap();
    assert!(matches!(&edited, Edited::AlreadyThere(current) if current.text() == "mine"), "{edited:?}");
    let document = server.document.lock().unwrap();
    assert_eq!((document.version, document.puts.len()), (2, 2));
}

#[tokio::test]
async fn without_a_strong_tag_nothing_is_sent() {
    for etag in ["", "ETag: W/\"N\"\r\n", "ETag: N\r\n"] {
        let server = serve(etag, |_| Around::Nothing);
        let error = edit(&server, 3, |_| None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{etag:?}: {error}");
        assert!(server.document.lock().unwrap().puts.is_empty(), "{etag:?}");
    }
}

/// RFC 9110 allows every byte from 0x80 on in a tag, also those that are no UTF-8.
#[tokio::test]
async fn a_tag_with_any_bytes_is_read_and_sent_as_it_came() {
    for (etag, read) in [(&b"\"caf\xc3\xa9\""[..], "\"caf\u{e9}\""), (b"\"caf\xe9\"", "\"caf\u{e9}\"")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/document", listener.local_addr().unwrap());
        let puts = std::thread::spawn(move || {
            let saw = |stream: TcpStream| answer_with_tag(&stream, etag).unwrap();
            listener.incoming().flatten().map(saw).find(|head| head.starts_with(b"PUT")).unwrap()
        });
        let client = client();
        let seen = client.get(&url).send().await.unwrap();
        assert_eq!(seen.entity_tag().expect("it is a tag").to_string(), read);
        let edited = client.edit(&url).save(&seen, "mine", |_| panic!("there is no conflict")).await.unwrap();
        assert!(matches!(edited, Edited::Answered(_)), "{edited:?}");
        let head = puts.join().unwrap();
        let field = [&b"if-match: "[..], etag, b"\r\n"].concat();
        assert!(head.windows(field.len()).any(|bytes| bytes == field), "{}", head.escape_ascii());
    }
}

/// Answers a request with this tag, and returns its head, with the names of its fields in lower case.
fn answer_with_tag(mut stream: &TcpStream, etag: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = Vec::new();
        reader.read_until(b'\n', &mut line)?;
        if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            line[..colon].make_ascii_lowercase();
        }
        if let Some(value) = line.strip_prefix(b"content-length: ") {
            length = String::from_utf8_lossy(value).trim().parse().unwrap();
        }
        head.extend_from_slice(&line);
        if line == b"\r\n" {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    let rest = b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(&[b"HTTP/1.1 200 Fine\r\nETag: ", etag, &rest[..]].concat())?;
    Ok(head)
}
