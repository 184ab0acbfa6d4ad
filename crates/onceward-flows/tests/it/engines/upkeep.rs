//! Tables that are kept small, topics that nobody knows, gaps, and dead letters that are settled.

use std::rc::Rc;
use std::time::Duration;

use onceward::Policy;
use onceward_flows::{
    DeadLetterFilter, FirstVersion, FlowTables, Message, OnGap, VersionAction, advance, advance_or,
};
use onceward_stores::sql::Migrations;

use super::consumers::{Running, State, Stock};
use super::{Db, Engine, on_every_engine};
use crate::consumer::{locally, options, order};

on_every_engine!(
    tables_are_made_once_and_required,
    versions_are_swept_by_their_age,
    a_gap_waits_is_fetched_or_applied,
    an_unknown_topic_is_a_dead_letter,
    a_dead_letter_that_is_settled_is_done,
);

async fn tables_are_made_once_and_required<E: Engine>() {
    let Some(url) = E::fresh() else { return };
    let error = FlowTables::open_with(&url, Migrations::Require).await.unwrap_err();
    assert!(error.to_string().contains("onceward migrate --messages"), "{error}");
    let tables = FlowTables::open(&url).await.unwrap();
    let again = tables.migrate().await.unwrap();
    assert_eq!(again.from, again.to);
    FlowTables::open_with(&url, Migrations::Require).await.unwrap();
}

async fn versions_are_swept_by_their_age<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    let mut tx = db.begin().await;
    advance(&mut tx, "stock", "item-7", 1, FirstVersion::One).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(db.tables.sweep_versions(Duration::from_secs(3600)).await.unwrap(), 0);
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(db.tables.sweep_versions(Duration::ZERO).await.unwrap(), 1);
}

async fn a_gap_waits_is_fetched_or_applied<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    let mut tx = db.begin().await;
    let mut step = async |version, on_gap| {
        advance_or(&mut tx, "stock", "item-7", version, FirstVersion::One, on_gap).await
    };
    assert_eq!(step(1, OnGap::Wait).await.unwrap(), VersionAction::Apply);
    assert_eq!(step(1, OnGap::Wait).await.unwrap(), VersionAction::Skip);
    let failure = step(3, OnGap::Wait).await.unwrap_err();
    assert!(!failure.is_permanent() && failure.to_string().contains("version 2 has not"), "{failure}");
    assert_eq!(step(3, OnGap::Fetch).await.unwrap(), VersionAction::Fetch { expected: 2 });
    assert_eq!(step(3, OnGap::Apply).await.unwrap(), VersionAction::Apply);
    assert_eq!(step(4, OnGap::Wait).await.unwrap(), VersionAction::Apply);
    tx.commit().await.unwrap();
}

async fn an_unknown_topic_is_a_dead_letter<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        let mut options = options();
        options.topics = Some(vec!["orders.placed".to_owned()]);
        let consumer = stock.consumer().await.with_options(options);
        let running = Running::start::<E>(&consumer, &Rc::new(State::default()));
        stock.commit([Message::new("orders.lost", "x").with_ordering_key("a"), order("b", 1)]).await;
        stock.until_dead("x dead").await;
        stock.until_effects("b", "1").await;
        let dead = consumer.dead_letters().list(&DeadLetterFilter::default(), 0, 2).await.unwrap();
        assert!(dead[0].error.contains("orders.lost"), "{}", dead[0].error);
        running.stop().await;
    })
    .await;
}

async fn a_dead_letter_that_is_settled_is_done<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        let (consumer, state) = (stock.consumer().await, Rc::new(State::default()));
        state.is_broken.set(true);
        let dead = consumer.dead_letters();
        let bad = order("a", "bad1");
        stock.commit([bad.clone(), order("a", 2)]).await;
        let running = Running::start::<E>(&consumer, &state);
        stock.until_dead("bad1 dead, 2 behind").await;
        assert!(dead.settle_done(bad.id(), &Policy::queue()).await.unwrap());
        assert!(!dead.settle_done(bad.id(), &Policy::queue()).await.unwrap());
        stock.until_dead("2 behind").await;
        assert_eq!(dead.retry_all(&DeadLetterFilter::default(), 1000).await.unwrap(), 1);
        stock.until_effects("a", "2").await;
        // A copy is recognised, and has no effect although nothing refuses it any more.
        state.is_broken.set(false);
        let before = consumer.counts().duplicates;
        stock.commit([bad]).await;
        while consumer.counts().duplicates == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(stock.effects("a").await, "2");
        running.stop().await;
    })
    .await;
}

/// The text of an error of these tables names the server and the database, and says what the server said.
fn assert_named(error: &onceward::Error, url: &str, cause: &str) {
    let text = error.to_string();
    let (server, name) = url.rsplit_once('@').unwrap_or(("", url)).1.rsplit_once('/').unwrap();
    let server = server.trim_start_matches("postgres://").trim_start_matches("mysql://");
    assert_eq!(error.kind(), onceward::ErrorKind::Unavailable, "{text}");
    assert!(text.contains(server) && text.contains(name) && text.contains(cause), "{server}/{name}: {text}");
}

#[tokio::test]
async fn errors_of_postgres_name_the_server_and_the_cause() {
    let Some(url) = super::Postgres::fresh() else { return };
    let tables = FlowTables::open(&url).await.unwrap();
    let refuse = "CREATE FUNCTION refuse() RETURNS int LANGUAGE plpgsql AS
            'BEGIN RAISE EXCEPTION ''not in this test''; END';
        ALTER TABLE onceward_outbox RENAME TO moved;
        CREATE VIEW onceward_outbox AS SELECT moved.* FROM refuse() LEFT JOIN moved ON true";
    sqlx::raw_sql(refuse).execute(&super::Postgres::pool(&url).await).await.unwrap();
    assert_named(&tables.backlog().await.unwrap_err(), &url, "not in this test");
}

#[tokio::test]
async fn errors_of_mariadb_name_the_server_and_the_cause() {
    let Some(url) = super::MariaDb::fresh() else { return };
    let tables = FlowTables::open(&url).await.unwrap();
    let refuse = "RENAME TABLE onceward_outbox TO moved;
        CREATE VIEW onceward_outbox AS SELECT * FROM moved;
        DROP TABLE moved";
    sqlx::raw_sql(refuse).execute(&super::MariaDb::pool(&url).await).await.unwrap();
    assert_named(&tables.backlog().await.unwrap_err(), &url, "references invalid");
}
