//! What stands between a store and its DynamoDB, and how it interferes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::servers::DynamoDb;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Between {
    /// Every third answer to a write is lost, after the write was done.
    LostAnswers,
    /// The first answer to a transaction is lost, after it was done.
    LostTransaction,
    /// Every third write is refused for want of capacity.
    Throttle,
    /// The table has a replica in another region.
    Replica,
    /// Reads that name the key 99 are never done.
    LeavesOut,
    /// Counts consistent queries, and refuses those of an index.
    NoIndexOfSteps,
    /// Everything is refused with this code.
    Refuses(&'static str),
    /// Transactions of two are cancelled with these codes.
    Cancels(&'static str, &'static str),
}

const KIND: &str = "com.amazonaws.dynamodb.v20120810#";
const REFUSED: &str = "HTTP/1.1 400 Bad Request";

/// The address of a store, asked for at another port.
pub(crate) fn at_port(url: &str, server: &DynamoDb, port: u16) -> String {
    url.replace(&format!(":{}", server.port()), &format!(":{port}"))
}

/// Passes calls on; returns its port, and how often it has interfered.
pub(crate) async fn proxy(server: &'static DynamoDb, between: Between) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (interfered, writes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let count = interfered.clone();
    tokio::spawn(async move {
        while let Ok((mut caller, _)) = listener.accept().await {
            let (count, writes) = (count.clone(), writes.clone());
            tokio::spawn(async move {
                while let Some(call) = Box::pin(message(&mut caller)).await {
                    let Some((status, date, body)) =
                        Box::pin(answer(server, between, &call, &count, &writes)).await
                    else {
                        return;
                    };
                    let head = format!(
                        "{status}\r\nDate: {date}\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    caller.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
                }
            });
        }
    });
    (port, interfered)
}

/// The status, the date and the body of an answer; `None` if it is lost.
async fn answer(
    server: &DynamoDb,
    between: Between,
    call: &[u8],
    count: &AtomicUsize,
    writes: &AtomicUsize,
) -> Option<(String, String, Vec<u8>)> {
    let text = String::from_utf8_lossy(call);
    let operation = |name: &str| text.to_lowercase().contains(&format!("dynamodb_20120810.{name}"));
    let interferes = match between {
        Between::LostAnswers | Between::Throttle => {
            operation("updateitem") && writes.fetch_add(1, Ordering::SeqCst) % 3 == 2
        }
        Between::LostTransaction => {
            operation("transactwriteitems") && writes.fetch_add(1, Ordering::SeqCst) == 0
        }
        Between::Replica => operation("describetable"),
        Between::LeavesOut => operation("batchgetitem") && text.contains("\\n99\""),
        Between::NoIndexOfSteps => operation("query") && text.contains("\"ConsistentRead\":true"),
        Between::Refuses(_) => true,
        Between::Cancels(..) => operation("transactwriteitems"),
    };
    if interferes {
        count.fetch_add(1, Ordering::SeqCst);
    }
    let now = httpdate::fmt_http_date(std::time::SystemTime::now());
    let refuse = |code: &str, more: &str| {
        let body = format!(r#"{{"__type":"{KIND}{code}","message":"as it was asked to"{more}}}"#);
        Some((REFUSED.to_owned(), now.clone(), body.into_bytes()))
    };
    match between {
        Between::Throttle if interferes => return refuse("ProvisionedThroughputExceededException", ""),
        Between::Refuses(code) => return refuse(code, ""),
        Between::NoIndexOfSteps if operation("query") && text.contains("\"IndexName\"") => {
            return refuse("ValidationException", "");
        }
        Between::Cancels(one, other) if interferes => {
            let reasons = format!(r#","CancellationReasons":[{{"Code":"{one}"}},{{"Code":"{other}"}}]"#);
            return refuse("TransactionCanceledException", &reasons);
        }
        Between::LeavesOut if interferes => {
            let (_, wanted) = text.split_once("\"RequestItems\":").unwrap();
            let body = format!(r#"{{"Responses":{{}},"UnprocessedKeys":{wanted}"#);
            return Some(("HTTP/1.1 200 OK".to_owned(), now, body.into_bytes()));
        }
        _ => {}
    }
    let mut service = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    service.write_all(call).await.unwrap();
    let answer = Box::pin(message(&mut service)).await.unwrap();
    if interferes && matches!(between, Between::LostAnswers | Between::LostTransaction) {
        return None;
    }
    let mut body = answer[head_bytes(&answer).unwrap()..].to_vec();
    let status = String::from_utf8_lossy(&answer).lines().next().unwrap().to_owned();
    if interferes && between == Between::Replica {
        let text = String::from_utf8(body).unwrap();
        let (start, rest) = text.split_once("\"Table\"").unwrap();
        let (colon, rest) = rest.split_once('{').unwrap();
        body = format!(r#"{start}"Table"{colon}{{"Replicas":[{{"RegionName":"eu-west-1"}}],{rest}"#)
            .into_bytes();
    }
    Some((status, now, body))
}

/// One message of HTTP with a declared length.
async fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(head) = head_bytes(&bytes) {
            let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
            let length =
                text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if bytes.len() >= head + length.unwrap_or(0usize) {
                return Some(bytes);
            }
        }
        let mut part = [0; 16 << 10];
        match stream.read(&mut part).await {
            Ok(count @ 1..) => bytes.extend_from_slice(&part[..count]),
            _ => return None,
        }
    }
}

fn head_bytes(message: &[u8]) -> Option<usize> {
    message.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}
