//! Failure tests of PostgreSQL: addresses, rights, foreign tables, a server that hangs or dies.

use std::sync::Arc;
use std::time::Duration;

use onceward::{
    Applied, Ask, Claimed, Cursor, Error, ErrorKind, Filter, Fingerprint, Id, Lease, Onceward, Outcome,
    Policy, Scan, ScanTarget, Seen, State, Store, Swap, Swapped,
};
use onceward_stores::PostgresStore;
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx, StatementCache};
use onceward_stores::sql::{InTransaction, Migrated, Migrations, Options};

use crate::servers::Postgres;
use crate::support::{id, put, record};
use crate::trouble::{self, Server, refused};

impl Server for Postgres {
    type Other = tokio_postgres::Client;

    fn start() -> Option<Self> {
        Self::start()
    }

    fn kill(&mut self) {
        self.kill();
    }

    fn up(&mut self) {
        self.up();
    }

    fn freeze(&self) {
        self.freeze();
    }

    fn thaw(&self) {
        self.thaw();
    }

    async fn open(&self, options: Options) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(&self.url("postgres"), options).await.unwrap())
    }

    async fn occupy(&self, key: u32) -> tokio_postgres::Client {
        let (client, connection) =
            tokio_postgres::connect(&self.url("postgres"), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let occupy = format!(
            "BEGIN; {}",
            insert(
                ("tenant", "POST /charges", &key.to_string()),
                ("tenant", "POST /charges", &key.to_string()),
                "held"
            )
        );
        client.batch_execute(&occupy).await.unwrap();
        client
    }

    async fn is_waited_for(other: &mut tokio_postgres::Client) -> bool {
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)";
        other.query_one(waits, &[]).await.unwrap().get(0)
    }

    async fn leave(other: tokio_postgres::Client) {
        other.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_in_trouble() {
    trouble::everything::<Postgres>().await;
}

async fn open(url: &str) -> Result<PostgresStore, Error> {
    PostgresStore::open(url, Options::default()).await
}

#[tokio::test]
async fn what_cannot_be_opened_is_explained() {
    let Some(server) = Postgres::start() else { return };
    refused(open("postgres://[").await, ErrorKind::Invalid, "postgres://user");
    refused(
        open(&format!("{}?sslmode=require", server.url("postgres"))).await,
        ErrorKind::Unavailable,
        "TLS",
    );
    refused(open(&server.url("nowhere")).await, ErrorKind::Invalid, "no such database");
    let url = server.url("postgres").replace("postgres@", "nobody@");
    refused(open(&url).await, ErrorKind::Invalid, "user");

    let url = server.database("foreign_receipts");
    server.sql("foreign_receipts", "CREATE TABLE onceward_receipts (x int)");
    refused(open(&url).await, ErrorKind::Foreign, "not made by onceward");
    let url = server.database("foreign_schema");
    server.sql("foreign_schema", "CREATE TABLE onceward_schema (x int)");
    refused(open(&url).await, ErrorKind::Foreign, "not made by onceward");

    let url = server.database("newer");
    open(&url).await.unwrap();
    server.sql("newer", "INSERT INTO onceward_schema (version, format) VALUES (99, 2)");
    refused(open(&url).await, ErrorKind::Foreign, "use a newer one");

    // A current server that claims to be an old one.
    let url = server.database("old");
    server.sql(
        "old",
        "CREATE SCHEMA old; CREATE FUNCTION old.current_setting(text) RETURNS text LANGUAGE sql
            AS $$ SELECT '120022' $$",
    );
    let old = format!("{url}?options=-csearch_path%3Dold,pg_catalog,public");
    refused(open(&old).await, ErrorKind::Invalid, "version 12, at least 13 is needed");

    let url = server.database("rights");
    let require = Options::default().with_migrations(Migrations::Require);
    refused(PostgresStore::open(&url, require.clone()).await, ErrorKind::Invalid, "onceward migrate");
    server.sql("rights", "CREATE ROLE guest LOGIN; REVOKE CREATE ON SCHEMA public FROM public");
    let guest = url.replace("postgres@", "guest@");
    refused(open(&guest).await, ErrorKind::Invalid, "lacks a right");
    assert_eq!(PostgresStore::migrate(&url).await.unwrap(), Migrated::new(0, 1));
    assert_eq!(PostgresStore::migrate(&url).await.unwrap(), Migrated::new(1, 1));
    refused(open(&guest).await, ErrorKind::Invalid, "lacks a right");
    server.sql("rights", "GRANT SELECT ON onceward_schema, onceward_receipts TO guest");
    let store = PostgresStore::open(&guest, require).await.unwrap();
    let error = store.swap(&[put(id(1), Seen::Absent, State::Held, Some(30))]).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Invalid, Applied::No), "{error}");
}

/// The server, the database and what the server said, and never the password.
#[tokio::test]
async fn errors_name_the_server_and_the_cause() {
    let Some(server) = Postgres::start() else { return };
    let named = |database: &str| format!("PostgreSQL at 127.0.0.1:{}, database `{database}`", server.port());

    let away = "cannot reach PostgreSQL at 127.0.0.1:1, database `shop`: Connection refused";
    refused(open("postgres://app:secret@127.0.0.1:1/shop").await, ErrorKind::Unavailable, away);
    let migrated = PostgresStore::migrate("postgres://app:secret@127.0.0.1:1/shop").await;
    refused(migrated, ErrorKind::Unavailable, away);

    let nowhere = open(&server.url("nowhere")).await;
    let Err(error) = &nowhere else { panic!("it opened") };
    assert!(error.to_string().contains("database \"nowhere\" does not exist"), "{error}");
    assert!(tokio_error(error).code().is_some(), "the driver's error can be found");
    refused(nowhere, ErrorKind::Invalid, &format!("{}: there is no such database", named("nowhere")));

    let folder = server.sql("postgres", "SHOW data_directory");
    server.sql("postgres", "CREATE ROLE locked LOGIN PASSWORD 'right'");
    let rules = "('host all locked 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust')";
    server.sql("postgres", &format!("COPY (VALUES {rules}) TO '{folder}/pg_hba.conf'"));
    server.sql("postgres", "SELECT pg_reload_conf()");
    let wrong = server.url("postgres").replace("postgres@", "locked:sesame@");
    let refusal = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            match open(&wrong).await {
                // Not reloaded yet: all users are trusted, and then a permission is missing.
                Err(error) if !error.to_string().contains("lacks a right") => break error,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    });
    let error = refusal.await.unwrap();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Invalid, Applied::No), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(&named("postgres")), "{text}");
    assert!(text.contains("password authentication failed for user \"locked\""), "{text}");
    assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
}

/// The driver's error behind one of ours.
fn tokio_error(error: &Error) -> &tokio_postgres::Error {
    let chain = std::iter::successors(std::error::Error::source(error), |error| error.source());
    chain.into_iter().find_map(|error| error.downcast_ref()).expect("it is in the chain")
}

/// A failed statement says what the server said.
#[tokio::test]
async fn a_failed_statement_carries_the_message_of_the_server() {
    let Some(server) = Postgres::shared() else { return };
    let database = server.fresh();
    let store = open(&server.url(&database)).await.unwrap();
    server.sql(&database, "DROP TABLE onceward_receipts CASCADE");
    let error = store.load(&[id(1)]).await.unwrap_err().to_string();
    assert!(error.contains("relation \"onceward_receipts\" does not exist"), "{error}");
    assert!(!error.contains("db error"), "{error}");
}

/// Tables of before the first release are left as they are, and the sentence says what to do about them.
#[tokio::test]
async fn tables_from_before_the_first_release_are_refused() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database("unreleased");
    server.sql(
        "unreleased",
        "CREATE TABLE onceward_schema (
            version int PRIMARY KEY, applied timestamptz NOT NULL DEFAULT clock_timestamp());
        INSERT INTO onceward_schema (version) VALUES (1), (2), (3), (4);
        CREATE TABLE onceward_receipts (scope text, operation text, key text, state text, version bigint,
            due timestamptz, created timestamptz, updated timestamptz, receipt bytea,
            id_high bigint, id_middle bigint, id_low bigint, PRIMARY KEY (id_high, id_middle, id_low));
        INSERT INTO onceward_receipts VALUES ('tenant', 'POST /charges', '1', 'done', 7, NULL, now(), now(), 'x', 1, 2, 3)",
    );
    let told = "drop `onceward_receipts` and `onceward_schema`";
    refused(open(&url).await, ErrorKind::Foreign, told);
    refused(PostgresStore::migrate(&url).await, ErrorKind::Foreign, told);
    assert_eq!(server.sql("unreleased", "SELECT count(*) FROM onceward_receipts"), "1");
    server.sql("unreleased", "DROP TABLE onceward_receipts, onceward_schema");
    open(&url).await.unwrap();
}

/// The store and SQL make the same numbers of an id, however long: otherwise it would be free.
#[tokio::test]
async fn numbers_are_those_that_sql_makes() {
    let Some(server) = Postgres::start() else { return };
    let store = open(&server.url("postgres")).await.unwrap();
    let (scope, operation, key) = ("s".repeat(255), "o".repeat(512), "k".repeat(255));
    for parts in [(&scope[..], &operation[..], &key[..]), ("tenant", "payout#reserve", "7")] {
        server.sql("postgres", &insert(parts, parts, "done"));
        let id = Id::from_columns(parts.0, parts.1, parts.2).unwrap();
        let swapped = store.swap(&[put(id.clone(), Seen::Absent, State::Held, None)]).await.unwrap();
        let Swapped::Lost(Some(found)) = &swapped[0] else { panic!("{swapped:?}") };
        assert_eq!(found.version, onceward::Version(7));
        assert!(store.load(&[id]).await.unwrap().remove(0).unwrap().is_some());
    }
}

/// Two ids with the same numbers are more than anybody will see. Still, neither is ever taken for the other.
#[tokio::test]
async fn an_id_with_the_numbers_of_another_is_refused() {
    let Some(server) = Postgres::start() else { return };
    let store = open(&server.url("postgres")).await.unwrap();
    for state in ["done", "free"] {
        let another = ("tenant", "POST /charges", "another");
        server.sql("postgres", &insert(another, ("tenant", "POST /charges", "1"), state));
        assert_eq!(store.load(&[id(1)]).await.unwrap().remove(0).unwrap(), None, "{state}");
        let claim = [put(id(1), Seen::Absent, State::Held, None)];
        assert_eq!(store.swap(&claim).await.unwrap_err().kind(), ErrorKind::Conflict);
        let both = [claim[0].clone(), put(id(2), Seen::Absent, State::Held, None)];
        let answers = store.swap(&both).await.unwrap();
        let [Swapped::Failed(refused), Swapped::Won(_)] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((refused.kind(), refused.applied()), (ErrorKind::Conflict, Applied::No), "{refused}");
        let rows = "SELECT key || ' ' || state FROM onceward_receipts WHERE key <> '2'";
        assert_eq!(server.sql("postgres", rows), format!("another {state}"));
        server.sql("postgres", "TRUNCATE onceward_receipts");
    }
}

/// Renaming a table that is in the way, as the error says, leaves the names of its indexes taken.
#[tokio::test]
async fn a_foreign_table_that_was_renamed_is_not_in_the_way() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database("renamed");
    server.sql("renamed", "CREATE TABLE onceward_receipts (id int PRIMARY KEY)");
    refused(open(&url).await, ErrorKind::Foreign, "rename it");
    server.sql("renamed", "ALTER TABLE onceward_receipts RENAME TO ours");
    let store = open(&url).await.unwrap();
    let swapped = store.swap(&[put(id(1), Seen::Absent, State::Held, None)]).await.unwrap();
    assert!(matches!(swapped[0], Swapped::Won(_)), "{swapped:?}");
    let keys = "SELECT string_agg(pg_get_constraintdef(oid), '; ' ORDER BY conrelid::regclass::text)
        FROM pg_constraint WHERE contype = 'p' AND conrelid IN ('onceward_receipts'::regclass, 'ours'::regclass)";
    assert_eq!(server.sql("renamed", keys), "PRIMARY KEY (id_high, id_middle, id_low); PRIMARY KEY (id)");
}

/// Writes a row by hand: with the texts of one id, and the numbers of another.
fn insert(texts: (&str, &str, &str), numbers: (&str, &str, &str), state: &str) -> String {
    let ((scope, operation, key), (of_scope, of_operation, of_key)) = (texts, numbers);
    let id = format!(
        "decode(lpad(to_hex({}), 2, '0') || lpad(to_hex({}), 4, '0'), 'hex')
            || '{of_scope}{of_operation}{of_key}'::bytea",
        of_scope.len(),
        of_operation.len()
    );
    let number = |bytes: &str| format!("('x' || encode({bytes}, 'hex'))::bit(64)::bigint");
    let high = number(&format!("substr(sha256('{of_scope}'), 1, 4) || substr(sha256('{of_key}'), 1, 4)"));
    let [middle, low] = [1, 9].map(|from| number(&format!("substr(sha256({id}), {from}, 8)")));
    format!(
        "INSERT INTO onceward_receipts
            (scope, operation, key, state, open_state, version, created, updated, receipt,
                id_high, id_middle, id_low)
        VALUES ('{scope}', '{operation}', '{key}', '{state}', 5, 7, clock_timestamp(), clock_timestamp(), 'receipt',
            {high}, {middle}, {low})"
    )
}

/// A cursor of one kind of scan would leave receipts out in another.
#[tokio::test]
async fn a_cursor_is_refused_by_another_kind_of_scan() {
    let Some(server) = Postgres::start() else { return };
    let store = open(&server.url("postgres")).await.unwrap();
    let batch: Vec<Swap> = (0..5).map(|key| put(id(key), Seen::Absent, State::Waiting, Some(0))).collect();
    store.swap(&batch).await.unwrap();
    let waiting = Filter::default().with_state(State::Waiting);
    let scans =
        [ScanTarget::Due(None), ScanTarget::Matching(Filter::default()), ScanTarget::Matching(waiting)];
    for (number, of) in scans.iter().enumerate() {
        let scan = Scan::new(of.clone(), 2);
        let next = store.scan(&scan).await.unwrap().next.expect("there are more");
        for (other, of) in scans.iter().enumerate() {
            let on = Scan::new(of.clone(), 2).with_after(Some(next.clone()));
            match store.scan(&on).await {
                Ok(page) => assert!(other == number && !page.found.is_empty(), "{of:?}"),
                Err(error) => {
                    assert!(other != number && error.to_string().contains("cursor"), "{of:?}: {error}");
                }
            }
        }
        let strange = scan.with_after(Some(Cursor(id(1).as_bytes().to_vec().into())));
        refused(store.scan(&strange).await, ErrorKind::Invalid, "cursor");
    }
}

#[tokio::test]
async fn connections_that_run_out_are_an_error_and_come_back() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database("limited");
    open(&url).await.unwrap();
    server.sql(
        "limited",
        "CREATE ROLE few LOGIN CONNECTION LIMIT 1; GRANT ALL ON ALL TABLES IN SCHEMA public TO few",
    );
    let few = url.replace("postgres@", "few@");
    let first = open(&few).await.unwrap();
    refused(open(&few).await, ErrorKind::Unavailable, "connection");
    assert!(matches!(
        first.swap(&[put(id(1), Seen::Absent, State::Held, None)]).await.unwrap()[0],
        Swapped::Won(_)
    ));
}

/// A statement that waits for a lock of somebody else is given up, and nothing of it comes later.
#[tokio::test]
async fn a_lock_held_by_others_is_not_waited_for_forever() {
    let Some(server) = Postgres::start() else { return };
    let options = Options::default().with_call_timeout(Duration::from_millis(800));
    let store = PostgresStore::open(&server.url("postgres"), options).await.unwrap();
    let (client, connection) =
        tokio_postgres::connect(&server.url("postgres"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE onceward_receipts").await.unwrap();
    let error = store.swap(&[put(id(1), Seen::Absent, State::Held, None)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    client.batch_execute("COMMIT").await.unwrap();
    assert!(store.load(&[id(1)]).await.unwrap().remove(0).unwrap().is_none());
}

/// Free rows go after their time, and never before somebody could be misled by their absence.
#[tokio::test]
async fn what_removals_leave_behind_is_purged() {
    let Some(server) = Postgres::start() else { return };
    let store = open(&server.url("postgres")).await.unwrap();
    let remove = async |key: u32| {
        let swapped = store.swap(&[put(id(key), Seen::Absent, State::Held, None)]).await.unwrap();
        let Swapped::Won(version) = swapped[0] else { panic!() };
        store.swap(&[Swap { id: id(key), seen: Seen::Version(version), new: None }]).await.unwrap();
    };
    for key in 0..20 {
        remove(key).await;
    }
    let count = || server.sql("postgres", "SELECT count(*) FROM onceward_receipts WHERE state = 'free'");
    let sweep = Scan::new(ScanTarget::Due(None), 10);
    assert!(store.scan(&sweep).await.unwrap().found.is_empty());
    assert_eq!(count(), "20", "they are young");
    server.sql("postgres", "UPDATE onceward_receipts SET due = clock_timestamp() - interval '1 second'");
    assert!(store.scan(&sweep).await.unwrap().found.is_empty());
    assert_eq!(count(), "0");
    // An old record leaves nothing.
    let written = record(State::Done, None, "receipt");
    store.swap(&[Swap { id: id("old"), seen: Seen::Absent, new: Some(written) }]).await.unwrap();
    server.sql("postgres", "UPDATE onceward_receipts SET version = 1000");
    store.swap(&[put(id("other"), Seen::Absent, State::Held, None)]).await.unwrap();
    let removal = Swap { id: id("old"), seen: Seen::Version(onceward::Version(1000)), new: None };
    assert!(matches!(store.swap(&[removal]).await.unwrap()[0], Swapped::Won(_)));
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM onceward_receipts"), "1");
}

/// A batch of claims does not wait, as a whole, for the one record that another transaction is changing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_committed_while_one_of_their_batch_is_locked_by_another() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database("locked");
    let store = Arc::new(PostgresStore::open(&url, Options::default()).await.unwrap());
    let waiting: Vec<_> = (1..=3).map(|key| put(id(key), Seen::Absent, State::Waiting, Some(0))).collect();
    // By another process: this one does not know where the rows are.
    let enqueued = open(&url).await.unwrap().swap(&waiting).await.unwrap();
    let claims: Vec<_> = (1..=3)
        .zip(enqueued)
        .map(|(key, enqueued)| match enqueued {
            Swapped::Won(version) => put(id(key), Seen::Version(version), State::Held, Some(60)),
            lost => panic!("nobody else was there: {lost:?}"),
        })
        .collect();
    let (other, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    other.batch_execute("BEGIN; SELECT FROM onceward_receipts WHERE key = '2' FOR UPDATE").await.unwrap();

    let claiming = tokio::spawn({
        let store = store.clone();
        async move { store.swap(&claims).await.unwrap() }
    });
    let states = async || {
        let found = store.load(&[id(1), id(2), id(3)]).await.unwrap();
        found.into_iter().map(|found| found.unwrap().unwrap().state).collect::<Vec<_>>()
    };
    while states().await != [State::Held, State::Waiting, State::Held] {
        assert!(!claiming.is_finished(), "the claim of the locked record cannot be over");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    other.batch_execute("ROLLBACK").await.unwrap();
    let answers = claiming.await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Swapped::Won(_))), "{answers:?}");
}

/// The server rolls such a transaction back and calls it a commit.
#[tokio::test]
async fn work_that_hides_a_failed_statement_commits_nothing() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database("hidden");
    let engine = Onceward::new(Arc::new(open(&url).await.unwrap())).unwrap();
    let transactions = PostgresTransactions::open(&url, 1).unwrap();
    let ask = |key: &str| Ask::new(named(key), Fingerprint::of(b"12"), Policy::queue());
    let outcome = Outcome::succeeded("");
    // The second time with every statement prepared.
    for after in ["first", "second"] {
        let work = async |_: Lease, tx: PostgresTx| {
            assert!(tx.batch_execute("SELECT 1 / 0").await.is_err());
            Ok(())
        };
        let answer = engine.transact_with_outcome(&transactions, ask("hidden"), outcome.clone(), work).await;
        let error = answer.unwrap_err();
        assert_eq!(error.applied(), Applied::No, "{error}");
        assert_eq!(engine.receipt(&named("hidden")).await.unwrap(), None);
        let work = async |_: Lease, _: PostgresTx| Ok(());
        let answer = engine.transact_with_outcome(&transactions, ask(after), outcome.clone(), work).await;
        assert!(!answer.unwrap().into_result().unwrap().replayed);
    }
    assert_eq!(engine.counts().completions, 2);
}

/// Also those of a transaction that is rolled back: they are of the connection.
#[tokio::test]
async fn the_bare_driver_keeps_statements_beside_its_client() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.database("prepared");
    let engine = Onceward::new(Arc::new(open(&url).await.unwrap())).unwrap();
    let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let statements = StatementCache::new();
    let mut prepared = Vec::new();
    for key in ["1", "2", "1", "3", "2"] {
        let mut tx = client.transaction().await.unwrap();
        let ask = Ask::new(named(key), Fingerprint::of(b"12"), Policy::queue());
        let claimed = {
            let mut joined = statements.within(&mut tx);
            let claimed = engine.claim_in(&mut InTransaction(&mut joined), &ask).await.unwrap();
            if let Claimed::Granted(ticket) = &claimed {
                let outcome = Outcome::succeeded(key);
                engine.complete_in(&mut InTransaction(&mut joined), ticket, &outcome).await.unwrap();
            }
            matches!(claimed, Claimed::Granted(_))
        };
        // The first one of each is undone.
        let commits = prepared.iter().any(|(before, _)| *before == key);
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        let count = "SELECT count(*) FROM pg_prepared_statements";
        let count: i64 = client.query_one(count, &[]).await.unwrap().get(0);
        assert!(claimed, "{key}: it was undone before");
        prepared.push((key, count));
    }
    let counts: Vec<i64> = prepared.iter().map(|(_, count)| *count).collect();
    // Those of the claim and the completion, and the one that counts them (which is gone when it is over).
    assert_eq!(counts, [counts[0]; 5], "each was prepared once");
    assert!(counts[0] >= 2, "{counts:?}");
    for (key, is_there) in [("1", true), ("2", true), ("3", false)] {
        assert_eq!(engine.receipt(&named(key)).await.unwrap().is_some(), is_there, "{key}");
    }
}

fn named(key: &str) -> Id {
    Id::new("tenant", "charge", key).unwrap()
}
