//! A payments service behind Onceward, to be judged by `onceward verify`:
//!
//! ```sh
//! cargo run -p onceward-verify --example payments -- 3000 ./data
//! onceward verify --url http://127.0.0.1:3000/charges --body '{"amount":12}' \
//!     --effects-url http://127.0.0.1:3000/charges/count
//! ```

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use onceward::{Onceward, Policy};
use onceward_http::{OncewardLayer, Route};
use tokio::net::TcpListener;

/// A charge is a line in a file. What comes before and after it takes its time.
async fn charge(book: PathBuf) -> Result<Response, StatusCode> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    let file = OpenOptions::new().create(true).append(true).open(&book);
    file.and_then(|mut file| file.write_all(b"charged\n")).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    tokio::time::sleep(Duration::from_millis(10)).await;
    Ok((StatusCode::CREATED, [("location", "/charges/1")], "charged").into_response())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(port), Some(folder)) = (arguments.next(), arguments.next().map(PathBuf::from)) else {
        return Err("usage: payments PORT FOLDER".into());
    };
    std::fs::create_dir_all(&folder)?;
    let store = onceward_stores::open(&format!("embedded:{}", folder.join("receipts").display())).await?;
    let policy = Policy::http().to_builder().with_lease(Duration::from_secs(1)).build()?;
    let layer =
        OncewardLayer::new(Onceward::new(store)?, [7; 32], Route::builder().with_policy(policy).build()?);
    let (book, count) = (folder.join("charges"), folder.join("charges"));
    let app = Router::new()
        .route("/charges", post(async move || charge(book.clone()).await))
        .layer(layer)
        .route("/charges/count", get(async move || lines(&count).to_string()));
    axum::serve(TcpListener::bind(format!("127.0.0.1:{port}")).await?, app).await?;
    Ok(())
}

fn lines(book: &PathBuf) -> usize {
    std::fs::read_to_string(book).map_or(0, |text| text.lines().count())
}
