//! DynamoDB from outside: conformance on two implementations of its protocol, lost answers, throttling, bad input.

use onceward_stores::aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    TimeToLiveSpecification, TimeToLiveStatus,
};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{
    Applied, Ask, Caps, ClockSource, Error, ErrorKind, Fingerprint, Hints, Id, Onceward, Outcome, Policy,
    Promises, Scan, ScanTarget, Seen, State, Store, Swapped,
};
use onceward_stores::DynamoDbStore;
use onceward_stores::aws_sdk_dynamodb::Client;
use onceward_stores::dynamodb::Options;
use onceward_verify::conformance::{self, Damage};

use crate::dated_proxy::{DatedProxy, NO_DATE};
use crate::dynamodb_proxy::{Between, at_port, proxy};
use crate::servers::DynamoDb;
use crate::support::{id, put};

pub(crate) async fn open(url: &str) -> Result<DynamoDbStore, Error> {
    DynamoDbStore::open(url, Options::default()).await
}

pub(crate) async fn fresh(url: &str) -> Result<DynamoDbStore, Error> {
    DynamoDbStore::migrate(url).await?;
    open(url).await
}

pub(crate) fn says(error: &Error, kind: ErrorKind, word: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(word), "{error}");
}

fn caps() -> Caps {
    let clock = ClockSource::Process { margin: Duration::from_secs(2) };
    let promises = Promises::default().with_durable(true).with_atomic(true).with_shared(true);
    Caps::new("dynamodb", promises.with_clock(clock).with_record_bytes_max(392 << 10))
        .with_hints(Hints::default().with_batches_in_flight(8).with_batches_internally(false))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_on_dynoxide() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    conformance::run(async || Ok(Arc::new(fresh(&server.url()).await?) as Arc<dyn Store>), caps()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_on_moto() {
    // Minutes: each call of it takes a hundred times as long.
    if !crate::support::usual_or_long(false, true) {
        return;
    }
    let Some(server) = DynamoDb::moto() else { return };
    conformance::run(async || Ok(Arc::new(fresh(&server.url()).await?) as Arc<dyn Store>), caps()).await;
}

/// A record whose state is of a later version.
struct LaterState {
    store: Arc<DynamoDbStore>,
    client: Client,
    table: String,
}

impl Damage for LaterState {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn damage(&self, id: &Id) {
        let update = self.client.update_item().table_name(&self.table);
        update
            .key("intent", AttributeValue::S(format!("{}\n{}", id.scope(), id.key())))
            .key("operation", AttributeValue::S(id.operation().to_owned()))
            .update_expression("SET #state = :later")
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":later", AttributeValue::S("later".into()))
            .send()
            .await
            .unwrap();
    }
}

/// A client as a user of the SDK has it.
pub(crate) fn client(port: u16) -> Client {
    use onceward_stores::aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};

    let http = aws_smithy_http_client::Builder::new().build_http();
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("key", "secret", None, None, "test"))
        .endpoint_url(format!("http://127.0.0.1:{port}"))
        .http_client(http);
    Client::from_conf(config.build())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    conformance::unreadable(async || {
        let url = server.url();
        DynamoDbStore::migrate(&url).await?;
        let table = url.split_once('@').unwrap().1.split_once('?').unwrap().0.to_owned();
        let client = client(server.port());
        let store = Arc::new(DynamoDbStore::from_client(&client, &table).await?);
        Ok(LaterState { store, client, table })
    })
    .await;
}

/// The write was done, and nobody was told: the error says that it may have been.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_may_have_been_applied_and_nothing_is_sent_twice() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let (port, lost) = proxy(server, Between::LostAnswers).await;
    let url = server.url();
    let direct = fresh(&url).await.unwrap();
    let store = open(&at_port(&url, server, port)).await.unwrap();
    let wanted = crate::support::usual_or_long(10, 50);
    let mut key = 0;
    while lost.load(Ordering::SeqCst) < wanted {
        key += 1;
        assert!(key < wanted * 10, "answers are not lost");
        let before = lost.load(Ordering::SeqCst);
        let swapped =
            store.swap(&[put(id(key), Seen::Absent, State::Held, Some(60))]).await.unwrap().remove(0);
        let found = direct.load(&[id(key)]).await.unwrap().remove(0).unwrap().expect("it was applied");
        match swapped {
            Swapped::Won(version) => assert_eq!(version, found.version),
            Swapped::Failed(error) => {
                assert_eq!(error.applied(), Applied::Maybe, "{error}");
                assert_eq!(lost.load(Ordering::SeqCst), before + 1, "it was sent again");
            }
            Swapped::Lost(found) => panic!("lost to {found:?}, and nobody else writes"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_write_was_not_applied_and_harms_no_other() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let (port, throttled) = proxy(server, Between::Throttle).await;
    let url = server.url();
    let direct = fresh(&url).await.unwrap();
    let store = open(&at_port(&url, server, port)).await.unwrap();
    let mut batch: Vec<_> = (0..30).map(|key| put(id(key), Seen::Absent, State::Held, Some(60))).collect();
    batch.sort_by(|one, other| one.id.cmp(&other.id));
    let swapped = store.swap(&batch).await.unwrap();
    let ids: Vec<Id> = batch.iter().map(|swap| swap.id.clone()).collect();
    let mut refused = 0;
    for (swapped, found) in swapped.iter().zip(direct.load(&ids).await.unwrap()) {
        match (swapped, found.unwrap()) {
            (Swapped::Won(version), Some(found)) => assert_eq!(*version, found.version),
            (Swapped::Failed(error), None) => {
                says(error, ErrorKind::Unavailable, "capacity");
                assert_eq!(error.applied(), Applied::No);
                refused += 1;
            }
            (swapped, found) => panic!("{swapped:?}, and there is {found:?}"),
        }
    }
    assert_eq!(refused, throttled.load(Ordering::SeqCst));
    assert!(refused > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_cannot_keep_receipts_are_refused() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let url = server.url();
    says(&open(&url).await.unwrap_err(), ErrorKind::Invalid, "onceward migrate");
    assert_eq!(DynamoDbStore::migrate(&url).await.unwrap().from, 0);
    assert_eq!(DynamoDbStore::migrate(&url).await.unwrap().from, 1);
    onceward_stores::open(&url).await.unwrap();
    let table = url.split_once('@').unwrap().1.split_once('?').unwrap().0;
    let expires = client(server.port()).describe_time_to_live().table_name(table).send().await.unwrap();
    let expires = expires.time_to_live_description().unwrap();
    assert_eq!(expires.attribute_name(), Some("expires"));
    assert_eq!(expires.time_to_live_status(), Some(&TimeToLiveStatus::Enabled));
    let (port, _) = proxy(server, Between::Replica).await;
    says(&open(&at_port(&url, server, port)).await.unwrap_err(), ErrorKind::Unfit, "global table");
    // Another table: it has no operations.
    let theirs = server.url();
    let table = theirs.split_once('@').unwrap().1.split_once('?').unwrap().0;
    client(server.port())
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(
            KeySchemaElement::builder().attribute_name("intent").key_type(KeyType::Hash).build().unwrap(),
        )
        .attribute_definitions(
            AttributeDefinition::builder()
                .attribute_name("intent")
                .attribute_type(ScalarAttributeType::S)
                .build()
                .unwrap(),
        )
        .send()
        .await
        .unwrap();
    says(&open(&theirs).await.unwrap_err(), ErrorKind::Foreign, "another shape");
    says(&DynamoDbStore::migrate(&theirs).await.unwrap_err(), ErrorKind::Foreign, "another shape");
}

/// Indexes of other types would give other keys, and a time to live that an interrupted migration left off is switched on
/// by the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_an_interrupted_migration_is_completed() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let url = server.url();
    DynamoDbStore::migrate(&url).await.unwrap();
    let table = url.split_once('@').unwrap().1.split_once('?').unwrap().0;
    let client = client(server.port());
    let off = TimeToLiveSpecification::builder().enabled(false).attribute_name("expires").build().unwrap();
    client.update_time_to_live().table_name(table).time_to_live_specification(off).send().await.unwrap();
    assert_eq!(DynamoDbStore::migrate(&url).await.unwrap().from, 1);
    let expires = client.describe_time_to_live().table_name(table).send().await.unwrap();
    let status = expires.time_to_live_description().unwrap().time_to_live_status();
    assert_eq!(status, Some(&TimeToLiveStatus::Enabled));
}

/// A process that was paused learns it from the answer to its next claim. The lease that it stamped with the time before the
/// pause would be over already for all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_after_a_pause_has_its_whole_lease() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let url = server.url();
    fresh(&url).await.unwrap();
    crate::paused::a_claim_after_a_pause_has_its_whole_lease(server.port(), async |port| {
        open(&at_port(&url, server, port)).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_clock_to_go_by_it_is_refused() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let url = server.url();
    fresh(&url).await.unwrap();
    let proxy = DatedProxy::start(server.port(), NO_DATE).await;
    says(&open(&at_port(&url, server, proxy.port)).await.unwrap_err(), ErrorKind::Unfit, "no Date field");
}

/// An erasure removes the steps that a scan names, so the scan must not go by an index that follows the table later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_are_read_from_the_table_itself() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let (port, asked) = proxy(server, Between::NoIndexOfSteps).await;
    let url = server.url();
    fresh(&url).await.unwrap();
    let store = open(&at_port(&url, server, port)).await.unwrap();
    let parent = id("parent");
    let mut batch =
        vec![parent.clone(), id("other").step("a").unwrap(), parent.step("a").unwrap().step("b").unwrap()];
    let steps: Vec<Id> = (0..7).map(|step| parent.step(&format!("s{step}")).unwrap()).collect();
    batch.extend(steps.clone());
    batch.sort();
    let batch: Vec<_> = batch.into_iter().map(|id| put(id, Seen::Absent, State::Done, Some(60))).collect();
    store.swap(&batch).await.unwrap();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let scan = Scan::new(ScanTarget::StepsOf(parent.clone()), 3).with_after(after);
        let page = store.scan(&scan).await.unwrap();
        found.extend(page.found.into_iter().map(|(id, _)| id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, steps);
    assert!(asked.load(Ordering::SeqCst) >= 3, "every page is a consistent query");
}

/// What the service leaves out of its answers again and again fails alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_not_read_harm_no_others() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let (port, _) = proxy(server, Between::LeavesOut).await;
    let url = server.url();
    fresh(&url).await.unwrap();
    let store = open(&at_port(&url, server, port)).await.unwrap();
    let ids: Vec<Id> = (0..150).map(id).collect();
    let loaded = store.load(&ids).await.unwrap();
    let unread = loaded.iter().filter(|loaded| match loaded {
        Ok(found) => {
            assert!(found.is_none());
            false
        }
        Err(error) => {
            says(error, ErrorKind::Unavailable, "capacity");
            true
        }
    });
    assert_eq!(unread.count(), 50, "one call of two");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_addresses_and_credentials_say_what_to_do() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let url = server.url();
    fresh(&url).await.unwrap();
    for (code, word) in [
        ("UnrecognizedClientException", "not accepted; correct them"),
        ("InvalidSignatureException", "not accepted; correct them"),
        ("ExpiredTokenException", "expired; renew them"),
        ("AccessDeniedException", "docs/stores.md"),
    ] {
        let (port, _) = proxy(server, Between::Refuses(code)).await;
        says(&open(&at_port(&url, server, port)).await.unwrap_err(), ErrorKind::Invalid, word);
    }
    // The table is in no other region: each is another service.
    let elsewhere = url.replace("dynamodb://key:secret@", "dynamodb://key:secret@elsewhere-");
    says(&open(&elsewhere).await.unwrap_err(), ErrorKind::Invalid, "in this region and account");
    let nowhere = at_port(&url, server, 1);
    let error = open(&nowhere).await.unwrap_err();
    says(&error, ErrorKind::Unavailable, "no answer");
    assert_eq!(error.applied(), Applied::No);
}

/// As on a machine where nobody has given any: the tests run without AWS's variables.
#[tokio::test]
async fn missing_credentials_say_where_they_are_looked_for() {
    use onceward_stores::aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Region};

    let Some(server) = DynamoDb::dynoxide() else { return };
    let http = aws_smithy_http_client::Builder::new().build_http();
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(aws_config::environment::EnvironmentVariableCredentialsProvider::new())
        .endpoint_url(format!("http://127.0.0.1:{}", server.port()))
        .http_client(http);
    let error = DynamoDbStore::from_client(&Client::from_conf(config.build()), "receipts").await.unwrap_err();
    says(&error, ErrorKind::Invalid, "no credentials were found; set AWS_ACCESS_KEY_ID");
    assert_eq!(error.applied(), Applied::No);
}

/// Answers are lost under load. Through the engine every intent has one effect, and its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_run_nothing_twice() {
    const CALLERS: usize = 16;
    let Some(server) = DynamoDb::dynoxide() else { return };
    let (port, lost) = proxy(server, Between::LostAnswers).await;
    let url = server.url();
    fresh(&url).await.unwrap();
    let store = open(&at_port(&url, server, port)).await.unwrap();
    let onceward = Onceward::new(Arc::new(store) as Arc<dyn Store>).unwrap();
    let (policy, effects) = (Arc::new(Policy::http()), Arc::<Mutex<BTreeMap<usize, usize>>>::default());
    let wanted = crate::support::usual_or_long(10, 50);
    let mut number = 0;
    while lost.load(Ordering::SeqCst) < wanted {
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..CALLERS {
            number += 1;
            // Two callers for each intent.
            let key = number / 2;
            let (onceward, policy, effects) = (onceward.clone(), policy.clone(), effects.clone());
            callers.spawn(async move {
                loop {
                    let ask = Ask::new(id(key), Fingerprint::of(b"same"), policy.clone());
                    let effects = effects.clone();
                    let work = async move |_| {
                        *effects.lock().unwrap().entry(key).or_default() += 1;
                        Ok(Outcome::succeeded(key.to_string()))
                    };
                    match onceward.run(ask, work).await.map(onceward::Answer::into_result) {
                        Ok(Ok(completed)) => {
                            assert_eq!(completed.outcome, Outcome::succeeded(key.to_string()));
                            return;
                        }
                        // In progress elsewhere, or the store could not be asked: again.
                        Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                    }
                }
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
    }
    let effects = effects.lock().unwrap();
    assert!(effects.values().all(|&effects| effects == 1), "{effects:?}");
    assert!(effects.len() >= number / 2);
}
