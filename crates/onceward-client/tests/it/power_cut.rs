//! A power cut: what was not synced is lost. Killing a process cannot show that, so a wrapper around the store lets
//! chosen writes hang and never applies them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::{
    Caps, Choose, Clock, Filter, Id, Loaded, Page, Scan, ScanTarget, State, Store, StoreFuture, Swap,
    Swapped, Watch,
};
use onceward_client::{Client, ErrorKind, ReplySource};
use tokio::sync::Notify;

use crate::journal::{HOUR_US, ManualClock, body};
use crate::schedules::patient;
use crate::server::{Fault, Server};

/// Applies the writes that `lasts` accepts; all others hang forever and are never applied.
struct CutStore {
    store: Arc<dyn Store>,
    lasts: fn(&Swap) -> bool,
    batches: AtomicU64,
    /// Records in them.
    rows: AtomicU64,
    stuck: Notify,
}

impl CutStore {
    fn over(store: Arc<dyn Store>, lasts: fn(&Swap) -> bool) -> Arc<Self> {
        Arc::new(Self {
            store,
            lasts,
            batches: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            stuck: Notify::new(),
        })
    }
}

impl Store for CutStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            self.batches.fetch_add(1, Ordering::SeqCst);
            self.rows.fetch_add(batch.len() as u64, Ordering::SeqCst);
            if !batch.iter().all(self.lasts) {
                self.stuck.notify_one();
                std::future::pending::<()>().await;
            }
            self.store.swap(batch).await
        })
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
        self.store.watch()
    }

    fn caps(&self) -> Caps {
        self.store.caps()
    }
}

fn is_answer(swap: &Swap) -> bool {
    swap.id.operation() == "send" && swap.new.as_ref().is_some_and(|new| new.state == State::Done)
}

fn clock(hour: u64) -> ManualClock {
    ManualClock(Arc::new(AtomicU64::new(hour * HOUR_US)))
}

async fn store(folder: &Path) -> Arc<dyn Store> {
    onceward_stores::open(&format!("embedded:{}", folder.display())).await.unwrap()
}

fn client(store: Arc<dyn Store>, clock: impl Clock) -> Client {
    crate::builder()
        .with_retry_config(patient())
        .with_journal_store(store)
        .with_clock(Arc::new(clock))
        .build()
        .unwrap()
}

#[tokio::test]
async fn no_byte_leaves_before_claim_and_request_are_durable_and_they_are_one_write() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let kept = store(folder.path()).await;
    for intent in [Some("order-7"), None] {
        let nothing_lasts = CutStore::over(kept.clone(), |_| false);
        let stuck = client(nothing_lasts.clone(), clock(1000));
        let request = stuck.post(&server.url).json(&body());
        let request = if let Some(name) = intent { request.intent(name) } else { request };
        let call = tokio::spawn(request.send());
        nothing_lasts.stuck.notified().await;
        // Long enough for a request to arrive, were one sent.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(server.state().requests, 0, "nothing was sent");
        assert_eq!(nothing_lasts.batches.load(Ordering::SeqCst), 1);
        call.abort();
    }
    let answers_do_not_last = CutStore::over(kept, |swap| !is_answer(swap));
    let sending = client(answers_do_not_last.clone(), clock(1000));
    sending.post(&server.url).json(&body()).intent("order-8").send().await.unwrap();
    assert_eq!(answers_do_not_last.batches.load(Ordering::SeqCst), 2, "claim and request; the answer");
}

#[tokio::test]
async fn a_call_is_two_writes_of_one_record_and_nothing_is_left_beside_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let counted = CutStore::over(store(folder.path()).await, |_| true);
    let sending = client(counted.clone(), clock(1000));
    for calls in 1..=3 {
        let name = format!("order-{calls}");
        sending.post(&server.url).json(&body()).intent(name).send().await.unwrap();
        sending.recorded().await;
        let written = (counted.batches.load(Ordering::SeqCst), counted.rows.load(Ordering::SeqCst));
        assert_eq!(written, (2 * calls, 2 * calls));
    }
    let all = Scan::new(ScanTarget::Matching(Filter::default()), 100);
    let page = counted.scan(&all).await.unwrap();
    assert!(page.found.iter().all(|(_, found)| found.state == State::Done), "{page:?}");
    assert_eq!(page.found.len(), 3, "one record an intent");
}

/// The answer was read, and the machine went down before its record was on the disk. Gives what comes
/// after: another process, at another hour.
async fn cut_behind_the_answer(then: u64) -> (Server, Client, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let (path, url) = (folder.path().to_owned(), server.url.clone());
    // A runtime of its own: when it is gone, everything is that was under way in it.
    let machine = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let answers_do_not_last = CutStore::over(store(&path).await, |swap| !is_answer(swap));
            let before = client(answers_do_not_last, clock(1000));
            let answer = before.post(&url).json(&body()).intent("order-7").send().await.unwrap();
            assert_eq!(&*answer.text(), "effect 0 of i", "an answer does not wait for its record");
        });
    });
    tokio::task::spawn_blocking(|| machine.join()).await.unwrap().unwrap();
    let after = client(store(folder.path()).await, clock(then));
    (server, after, folder)
}

#[tokio::test]
async fn an_answer_that_was_not_recorded_is_requested_again_under_its_key() {
    let (server, after, _folder) = cut_behind_the_answer(1023).await;
    let resumed = after.resume().await.unwrap();
    assert_eq!(resumed.len(), 1);
    let answer = resumed[0].result.as_ref().unwrap();
    assert_eq!((&*answer.text(), answer.report().source), ("effect 0 of i", ReplySource::Replay));
    let intent = server.intent("i");
    assert_eq!((intent.effects, intent.keys.len(), intent.numbers.len()), (1, 1, 2), "{intent:?}");
    let again = after.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    assert_eq!(again.report().source, ReplySource::Journal);
}

#[tokio::test]
async fn after_the_key_expires_an_unrecorded_answer_is_unknown() {
    let (server, after, _folder) = cut_behind_the_answer(1024).await;
    let error = after.post(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert_eq!(server.state().requests, 1, "it was not sent again");
}
