//! A precondition from the wire to the row and back: `If-Match` is compared in the statement that writes, the new tag is the
//! `ETag` of the answer, and the receipt commits with both.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::put;
use axum::{Extension, body::Bytes};
use onceward::{Onceward, Stopped};
use onceward_http::{
    EntityTag, KeyRule, OncewardLayer, Preconditions, Problem, ResponseLease, Route, RowCondition,
};
use onceward_stores::sql::sqlite::{SqliteStore, SqliteTransactions, SqliteTx};
use onceward_stores::sql::{If, Options, TagColumn, Value, Versioned, Written, versioned};
use tower_service::Service;

const DOCUMENTS: Versioned<'static> = Versioned::new("documents", "id", TagColumn::Version("version"));

async fn save(
    transactions: SqliteTransactions,
    lease: ResponseLease,
    preconditions: Preconditions,
    body: &str,
) -> Response {
    let saved = lease.transact(&transactions, async |mut tx: SqliteTx| {
        let condition = preconditions.row_condition();
        let condition = match &condition {
            RowCondition::Match(tags) => If::Match(tags),
            RowCondition::Exists => If::Exists,
            RowCondition::Absent => If::Absent,
            RowCondition::Unconditional | RowCondition::NotComparable => {
                return Ok(IntoResponse::into_response(Problem::PreconditionRequired));
            }
        };
        let change = [("body", Value::Text(body))];
        let written = versioned(&mut tx, DOCUMENTS, Value::Text("d"), condition, &change).await?;
        if body == "stop" {
            return Err(Stopped::before_effect("a bug behind the write"));
        }
        Ok(match written {
            Written::Now(tag) => (EntityTag::strong(&tag)?, "saved").into_response(),
            Written::Conflict(current) => {
                let current = current.map(|tag| EntityTag::strong(&tag)).transpose()?;
                IntoResponse::into_response(preconditions.refusal(current))
            }
        })
    });
    match saved.await {
        Ok(response) => response.into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The service, with its documents and its receipts in one database.
async fn service(path: &Path) -> (Router, SqliteTransactions) {
    let store = SqliteStore::open(path, Options::default()).await.unwrap();
    let transactions = SqliteTransactions::open(path);
    let onceward = Onceward::new(Arc::new(store)).unwrap();
    let route = Route::builder().with_methods([http::Method::PUT]).with_key(KeyRule::Required);
    let layer = OncewardLayer::new(onceward, [7; 32], route.with_effects_in_transaction().build().unwrap());
    let handler = {
        let transactions = transactions.clone();
        move |Extension(lease): Extension<ResponseLease>, preconditions: Preconditions, body: Bytes| {
            let transactions = transactions.clone();
            async move {
                let body = String::from_utf8(body.to_vec()).unwrap();
                save(transactions, lease, preconditions, &body).await
            }
        }
    };
    (Router::new().route("/document", put(handler)).layer(layer), transactions)
}

/// Status, `ETag`, whether it is a replay, and the body.
async fn send(app: &Router, key: &str, condition: (&str, &str), body: &str) -> (u16, String, bool, String) {
    let request = Request::builder().method("PUT").uri("/document").header("idempotency-key", key);
    let request = request.header(condition.0, condition.1).body(Body::from(body.to_owned())).unwrap();
    let mut app = app.clone();
    std::future::poll_fn(|cx| Service::<Request>::poll_ready(&mut app, cx)).await.unwrap();
    let response = app.call(request).await.unwrap();
    let field = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (status, tag, replayed) = (
        response.status().as_u16(),
        field("etag").unwrap_or_default(),
        field("idempotent-replayed").is_some(),
    );
    let body = to_bytes(response.into_body(), 10_000).await.unwrap();
    (status, tag, replayed, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_precondition_a_versioned_row_its_tag_and_its_receipt_are_one_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let (app, transactions) = service(&path).await;
    let row = async || {
        transactions
            .with(|connection| {
                let read =
                    "SELECT count(*), coalesce(max(version), 0), coalesce(max(body), '') FROM documents";
                connection.query_row(read, [], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
                })
            })
            .await
            .unwrap()
    };
    let create = "CREATE TABLE documents (id TEXT PRIMARY KEY, version INTEGER NOT NULL, body TEXT)";
    transactions.with(move |connection| connection.execute_batch(create)).await.unwrap();

    let made = send(&app, "make", ("if-none-match", "*"), "first").await;
    assert_eq!((made.0, made.2), (200, false), "{made:?}");
    let (one, version) = (made.1.as_str(), made.1.trim_matches('"').parse::<i64>().unwrap() + 1);
    let two = format!("\"{version}\"");
    let first = send(&app, "edit", ("if-match", one), "second").await;
    assert_eq!((first.0, first.1.as_str(), first.2), (200, two.as_str(), false), "{first:?}");
    // Its tag is stale because it succeeded.
    let retry = send(&app, "edit", ("if-match", one), "second").await;
    assert_eq!((retry.0, retry.1.as_str(), retry.2), (200, two.as_str(), true), "{retry:?}");
    assert_eq!(row().await, (1, version, "second".into()));

    // A client that saw the first version is told of both, and nothing is recorded.
    for _ in 0..2 {
        let late = send(&app, "late", ("if-match", one), "third").await;
        assert_eq!((late.0, late.2), (412, false), "{late:?}");
        let problem: serde_json::Value = serde_json::from_str(&late.3).unwrap();
        assert_eq!((&problem["expected"][0], &problem["current"]), (&one.into(), &two.as_str().into()));
    }
    // What fails behind the write takes the write and the receipt with it.
    let stopped = send(&app, "stop", ("if-match", &two), "stop").await;
    assert_eq!((stopped.0, row().await), (500, (1, version, "second".into())), "{stopped:?}");
    // A condition that no statement can compare writes nothing.
    let date = ("if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(send(&app, "dated", date, "lost").await.0, 428);
    assert_eq!(row().await, (1, version, "second".into()));
    // The same as after a restart.
    let (restarted, _) = service(&path).await;
    let retry = send(&restarted, "edit", ("if-match", one), "second").await;
    assert_eq!((retry.0, retry.1.as_str(), retry.2), (200, two.as_str(), true));
}
