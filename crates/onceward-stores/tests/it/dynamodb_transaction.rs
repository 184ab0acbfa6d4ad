//! A completion together with writes of the caller's: both or neither, whatever is refused, lost or repeated.

use std::collections::HashMap;
use std::sync::Arc;

use onceward::receipt::Status;
use onceward::{
    Applied, Ask, Claimed, ErrorKind, Fingerprint, Onceward, Outcome, Policy, State, Store, Ticket,
};
use onceward_stores::DynamoDbStore;
use onceward_stores::aws_sdk_dynamodb::Client;
use onceward_stores::aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put,
    ReturnValuesOnConditionCheckFailure, ScalarAttributeType, TransactWriteItem, Update,
};
use onceward_stores::dynamodb::{CompletedWith, WRITES_MAX};

use crate::dynamodb::{client, fresh, open, says};
use crate::dynamodb_proxy::{Between, at_port, proxy};
use crate::servers::DynamoDb;
use crate::support::id;

/// A store, an engine on it, and a table of orders beside it.
struct Shop {
    store: Arc<DynamoDbStore>,
    onceward: Onceward,
    client: Client,
    orders: String,
}

impl Shop {
    async fn open(server: &'static DynamoDb) -> Self {
        let url = server.url();
        fresh(&url).await.unwrap();
        Self::at(server, &url).await
    }

    /// With this between the store and its service.
    async fn behind(server: &'static DynamoDb, between: Between) -> Self {
        let url = server.url();
        fresh(&url).await.unwrap();
        let (port, _) = proxy(server, between).await;
        Self::at(server, &at_port(&url, server, port)).await
    }

    async fn at(server: &'static DynamoDb, url: &str) -> Self {
        let store = Arc::new(open(url).await.unwrap());
        let onceward = Onceward::new(store.clone() as Arc<dyn Store>).unwrap();
        let client = client(server.port());
        let orders = format!("{}-orders", url.split_once('@').unwrap().1.split_once('?').unwrap().0);
        let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
        let id = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
        client
            .create_table()
            .table_name(&orders)
            .billing_mode(BillingMode::PayPerRequest)
            .key_schema(key.build().unwrap())
            .attribute_definitions(id.build().unwrap())
            .send()
            .await
            .unwrap();
        Self { store, onceward, client, orders }
    }

    async fn claim(&self, key: &str) -> Ticket {
        let ask = Ask::new(id(key), Fingerprint::of(b"same"), Policy::ledger());
        match self.onceward.claim(ask).await.unwrap() {
            Claimed::Granted(ticket) => ticket,
            Claimed::Answered(answer) => panic!("{answer:?}"),
        }
    }

    /// A new order; refused if there is one.
    fn order(&self, key: &str) -> TransactWriteItem {
        let put = Put::builder()
            .table_name(&self.orders)
            .item("id", AttributeValue::S(key.into()))
            .item("by", AttributeValue::S("us".into()))
            .condition_expression("attribute_not_exists(id)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        TransactWriteItem::builder().put(put.build().unwrap()).build()
    }

    /// One more, without a condition.
    fn count(&self, key: &str) -> TransactWriteItem {
        let update = Update::builder()
            .table_name(&self.orders)
            .key("id", AttributeValue::S(key.into()))
            .update_expression("ADD times :one")
            .expression_attribute_values(":one", AttributeValue::N("1".into()));
        TransactWriteItem::builder().update(update.build().unwrap()).build()
    }

    async fn there(&self, key: &str) -> Option<HashMap<String, AttributeValue>> {
        let get = self.client.get_item().table_name(&self.orders).consistent_read(true);
        get.key("id", AttributeValue::S(key.into())).send().await.unwrap().item
    }

    async fn complete(
        &self,
        ticket: &Ticket,
        writes: Vec<TransactWriteItem>,
    ) -> onceward::Result<CompletedWith> {
        self.store.complete_with(&self.onceward, ticket, &Outcome::succeeded("paid"), writes).await
    }

    async fn state(&self, ticket: &Ticket) -> Status {
        self.onceward.receipt(ticket.id()).await.unwrap().unwrap().status
    }
}

async fn both_or_neither(server: &'static DynamoDb) {
    let shop = Shop::open(server).await;
    // Both; also with a version that has moved since the claim, and when it is asked for again.
    let ticket = shop.claim("1").await;
    assert_eq!(shop.onceward.renew(&ticket).await.unwrap(), onceward::Changed::Applied);
    for _ in 0..2 {
        let completed = shop.complete(&ticket, vec![shop.order("1"), shop.count("all")]).await.unwrap();
        assert_eq!(completed, CompletedWith::Applied);
        assert_eq!(shop.there("all").await.unwrap()["times"], AttributeValue::N("1".into()));
    }
    assert_eq!(shop.state(&ticket).await.outcome(), Some(&Outcome::succeeded("paid")));
    assert!(shop.there("1").await.is_some());
    // Another outcome for the same claim.
    let other = shop.store.complete_with(&shop.onceward, &ticket, &Outcome::succeeded("not"), vec![]).await;
    assert!(matches!(other, Ok(CompletedWith::NotOwner(Some(_)))), "{other:?}");

    // Neither: a condition of the caller's does not hold, and the claim is as it was.
    let ticket = shop.claim("2").await;
    let completed = shop.complete(&ticket, vec![shop.count("all"), shop.order("1")]).await.unwrap();
    let CompletedWith::Refused(refused) = completed else { panic!("{completed:?}") };
    assert_eq!((refused.len(), refused[0].place), (1, 1));
    assert_eq!(refused[0].code, "ConditionalCheckFailed");
    assert_eq!(shop.there("all").await.unwrap()["times"], AttributeValue::N("1".into()));
    assert!(matches!(shop.state(&ticket).await, Status::Held(_)));
    assert_eq!(shop.complete(&ticket, vec![shop.order("2")]).await.unwrap(), CompletedWith::Applied);

    // Neither: somebody else has the claim.
    let ticket = shop.claim("3").await;
    shop.onceward.release(&ticket).await.unwrap();
    let next = shop.claim("3").await;
    let completed = shop.complete(&ticket, vec![shop.order("3")]).await.unwrap();
    assert!(matches!(completed, CompletedWith::NotOwner(Some(_))), "{completed:?}");
    assert!(shop.there("3").await.is_none());
    assert_eq!(shop.complete(&next, vec![shop.order("3")]).await.unwrap(), CompletedWith::Applied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_or_neither_on_dynoxide() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    both_or_neither(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_or_neither_on_moto() {
    // Installed by the long check only.
    if !crate::support::usual_or_long(false, true) {
        return;
    }
    let Some(server) = DynamoDb::moto() else { return };
    both_or_neither(server).await;
}

/// The takeover comes between the look and the write: the version in the transaction decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_taken_over_meanwhile_writes_nothing() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let shop = Shop::open(server).await;
    let ticket = shop.claim("1").await;
    let (one, other) =
        tokio::join!(shop.complete(&ticket, vec![shop.count("all")]), shop.onceward.release(&ticket));
    // Whichever was first, the other changes nothing.
    let applied = one.as_ref().is_ok_and(|completed| *completed == CompletedWith::Applied);
    assert_eq!(shop.there("all").await.is_some(), applied, "{one:?} {other:?}");
    let receipt = shop.onceward.receipt(ticket.id()).await.unwrap();
    assert_eq!(receipt.is_some_and(|receipt| receipt.status.state() == State::Done), applied);
}

/// The answer to the transaction is lost: it is sent again under the same token, and nothing happens twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_doubles_nothing() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let shop = Shop::behind(server, Between::LostTransaction).await;
    let ticket = shop.claim("1").await;
    let completed = shop.complete(&ticket, vec![shop.count("all")]).await.unwrap();
    assert_eq!(completed, CompletedWith::Applied);
    assert_eq!(shop.there("all").await.unwrap()["times"], AttributeValue::N("1".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_transaction_was_cancelled_is_told_apart() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    for (one, other, kind, word) in [
        ("TransactionConflict", "None", ErrorKind::Unavailable, "another transaction"),
        ("None", "TransactionConflict", ErrorKind::Unavailable, "another transaction"),
        ("ThrottlingError", "None", ErrorKind::Unavailable, "capacity"),
        ("None", "ProvisionedThroughputExceeded", ErrorKind::Unavailable, "capacity"),
        ("None", "ValidationError", ErrorKind::Invalid, "ValidationError"),
    ] {
        let shop = Shop::behind(server, Between::Cancels(one, other)).await;
        let ticket = shop.claim("1").await;
        let error = shop.complete(&ticket, vec![shop.count("all")]).await.unwrap_err();
        says(&error, kind, word);
        assert_eq!(error.applied(), Applied::No, "{error}");
        assert!(matches!(shop.state(&ticket).await, Status::Held(_)));
    }
    // Theirs counts before what passes; ours counts before theirs.
    let shop = Shop::behind(server, Between::Cancels("ValidationError", "TransactionConflict")).await;
    let completed = shop.complete(&shop.claim("1").await, vec![shop.count("all")]).await.unwrap();
    assert!(matches!(completed, CompletedWith::Refused(_)), "{completed:?}");
    let shop =
        Shop::behind(server, Between::Cancels("ConditionalCheckFailed", "ConditionalCheckFailed")).await;
    let completed = shop.complete(&shop.claim("1").await, vec![shop.count("all")]).await.unwrap();
    assert!(matches!(completed, CompletedWith::NotOwner(_)), "{completed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_one_transaction_is_refused() {
    let Some(server) = DynamoDb::dynoxide() else { return };
    let shop = Shop::open(server).await;
    let ticket = shop.claim("1").await;
    let many = (0..=WRITES_MAX).map(|key| shop.order(&key.to_string())).collect();
    says(&shop.complete(&ticket, many).await.unwrap_err(), ErrorKind::Invalid, "at most 99");
    let most = (0..WRITES_MAX).map(|key| shop.order(&key.to_string())).collect();
    assert_eq!(shop.complete(&ticket, most).await.unwrap(), CompletedWith::Applied);
    // A failure that is tried again frees the key: writes beside it would be repeated.
    let policy = Policy::queue();
    let ask = Ask::new(id("2"), Fingerprint::of(b"same"), policy);
    let Claimed::Granted(ticket) = shop.onceward.claim(ask).await.unwrap() else { panic!("it is free") };
    let failed = Outcome::failed("no money");
    let completed = shop.store.complete_with(&shop.onceward, &ticket, &failed, vec![shop.order("x")]).await;
    says(&completed.unwrap_err(), ErrorKind::Invalid, "takes no writes along");
    assert!(shop.there("x").await.is_none());
}
