//! The call of a step to a participant whose layer honours keys and closings.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::routing::post;
use onceward::{Backoff, State as ReceiptState};
use onceward_client::reqwest;
use onceward_flows::{Ended, Saga, SagaState, Step, StepResult, StepStop};
use onceward_http::{OncewardLayer, Route};

type Effects = Arc<Mutex<Vec<String>>>;

async fn charge(State(effects): State<Effects>, headers: HeaderMap) -> (StatusCode, &'static str) {
    assert!(headers.contains_key("onceward-fence"));
    effects.lock().unwrap().push("charge".into());
    (StatusCode::CREATED, "ch_1")
}

async fn refund(State(effects): State<Effects>, headers: HeaderMap) -> &'static str {
    let found = headers.get("onceward-found").map_or("", |found| found.to_str().unwrap());
    effects.lock().unwrap().push(format!("refund of what is {found}"));
    "refunded"
}

/// A participant that guards its charges, and closes them before their refunds.
async fn participant() -> (SocketAddr, Effects) {
    let effects = Effects::default();
    let route = Route::builder().with_closes(["POST /charges"]).build().unwrap();
    let layer = OncewardLayer::new(onceward_stores::in_memory(), [7; 32], route);
    let router = Router::new().route("/charges", post(charge)).route("/refunds", post(refund));
    let router = router.layer(layer).with_state(effects.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, effects)
}

/// A client, whichever features of TLS other crates of a build have switched on.
fn http_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

fn call(step: &Step, address: SocketAddr, path: &str) -> onceward_flows::StepRequest {
    let url = format!("http://{address}{path}");
    let me = HeaderValue::from_static("Bearer the-saga");
    let client = http_client();
    step.request(&client, Method::POST, &url)
        .header(header::AUTHORIZATION, me)
        .at_most(Duration::from_secs(20))
}

/// The action is sent, and its answer is lost: a failure. What is still on its way is refused after the undo.
#[tokio::test]
async fn an_undo_closes_its_action_at_the_participant_and_a_late_copy_is_refused() {
    let (address, effects) = participant().await;
    let onceward = onceward_stores::in_memory();
    let key = Arc::new(Mutex::new(String::new()));
    let sent = key.clone();
    let saga = Saga::builder("order")
        .step("charge", move |step: Step| {
            *sent.lock().unwrap() = step.key().unwrap().to_string();
            std::future::ready(Err::<(), _>(StepStop::failed("it is on its way")))
        })
        .undo(move |step: Step| async move {
            call(&step, address, "/refunds").closes("POST /charges").send().await
        })
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    saga.worker(&onceward).unwrap().run_once().await.unwrap();
    let view = saga.view(&onceward, "81").await.unwrap().unwrap();
    assert_eq!(view.ended, Some(Ended::Undone("charge: it is on its way".into())), "{view:#?}");
    assert_eq!(*effects.lock().unwrap(), ["refund of what is absent"]);
    let late = http_client().post(format!("http://{address}/charges"));
    let late = late.header("authorization", "Bearer the-saga");
    let late = late.header("idempotency-key", format!("\"{}\"", key.lock().unwrap())).send().await.unwrap();
    assert_eq!(late.status(), StatusCode::CONFLICT);
    assert!(late.text().await.unwrap().contains("closed"));
    assert_eq!(effects.lock().unwrap().len(), 1, "the late copy ran");
}

#[tokio::test]
async fn an_action_that_was_done_is_undone_by_its_key() {
    let (address, effects) = participant().await;
    let onceward = onceward_stores::in_memory();
    let saga = Saga::builder("order")
        .step(
            "charge",
            move |step: Step| async move { call(&step, address, "/charges").json("x").send().await },
        )
        .undo(move |step: Step| async move {
            assert_eq!(step.result().unwrap(), "ch_1");
            call(&step, address, "/refunds").closes("POST /charges").send().await
        })
        .step("ship", |_: Step| async { StepResult::<()>::Err(StepStop::refused("sold out")) })
        .build()
        .unwrap();
    saga.start(&onceward, "81", "").await.unwrap();
    saga.worker(&onceward).unwrap().run_once().await.unwrap();
    let view = saga.view(&onceward, "81").await.unwrap().unwrap();
    assert_eq!(view.ended, Some(Ended::Undone("ship: sold out".into())), "{view:#?}");
    assert_eq!(*effects.lock().unwrap(), ["charge", "refund of what is done"]);
}

/// A connection that was refused proves that nothing happened; one that ends without an answer proves nothing.
#[tokio::test]
async fn nothing_sent_is_tried_again_and_no_answer_is_unknown() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (silent_at, closed_at) = (silent.local_addr().unwrap(), closed.local_addr().unwrap());
    drop(closed);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = silent.accept().await.unwrap();
            tokio::io::AsyncReadExt::read(&mut socket, &mut [0; 1024]).await.unwrap();
        }
    });
    let once = Backoff::new(Duration::from_millis(1), Duration::from_millis(1));
    for (address, expected) in [(closed_at, "refused"), (silent_at, "unknown")] {
        let onceward = onceward_stores::in_memory();
        let saga = Saga::builder("order")
            .step("charge", move |step: Step| async move { call(&step, address, "/charges").send().await })
            .with_tries(1, once)
            .build()
            .unwrap();
        saga.start(&onceward, "81", "").await.unwrap();
        saga.worker(&onceward).unwrap().run_once().await.unwrap();
        let view = saga.view(&onceward, "81").await.unwrap().unwrap();
        match expected {
            "refused" => {
                let Some(Ended::Undone(reason)) = &view.ended else { panic!("{view:#?}") };
                assert!(reason.contains("nothing was sent"), "{reason}");
            }
            _ => {
                let SagaState::NeedsPerson(needs) = &view.state else { panic!("{view:#?}") };
                assert_eq!(needs.state, ReceiptState::Unknown);
                assert!(needs.reason.contains("no answer"), "{needs:?}");
            }
        }
    }
}
