//! The same protocol in hand-written SQL: an insert that may conflict, and an update.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{Client, NoTls, Statement};

use super::{ANSWER, BUSINESS, key};
use crate::load::callers;
use crate::servers::Postgres;
use crate::turns::Turn;

pub(super) const TABLES: &str = "CREATE TABLE hand (key text PRIMARY KEY, state text NOT NULL, answer text);
    CREATE TABLE business (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account text, amount bigint)";
const CLAIM: &str = "INSERT INTO hand (key, state) VALUES ($1, 'held') ON CONFLICT (key) DO NOTHING";
const COMPLETE: &str = "UPDATE hand SET state = 'done', answer = $2 WHERE key = $1";

/// Both statements as a script of `pgbench`, each its own commit.
const SCRIPT: &str = "\\set a random(1, 9223372036854775807)
INSERT INTO hand (key, state) VALUES ('order-' || :a, 'held') ON CONFLICT (key) DO NOTHING;
UPDATE hand SET state = 'done', answer = '{\"id\":81,\"status\":\"charged\"}' WHERE key = 'order-' || :a;
";

/// Connections with their statements prepared, one for each caller.
pub(super) struct Hands(Vec<Hand>);

#[derive(Clone)]
pub(super) struct Hand {
    client: Arc<Client>,
    claim: Statement,
    business: Statement,
    complete: Statement,
}

impl Hands {
    pub(super) async fn connect(url: &str, count: usize) -> Self {
        let mut hands = Vec::new();
        for _ in 0..count {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
            tokio::spawn(connection);
            hands.push(Hand {
                claim: client.prepare(CLAIM).await.unwrap(),
                business: client.prepare(BUSINESS).await.unwrap(),
                complete: client.prepare(COMPLETE).await.unwrap(),
                client: Arc::new(client),
            });
        }
        Self(hands)
    }

    /// Calls per second with every connection in use.
    pub(super) async fn rate<W: Future<Output = ()> + Send + 'static>(
        &self,
        length: Duration,
        call: impl Fn(Hand) -> W + Send + Sync + 'static,
    ) -> Turn {
        let hands = self.0.clone();
        callers(hands.len(), tokio::time::sleep(length), move |caller| call(hands[caller].clone())).await
    }
}

/// The business transaction without any key.
pub(super) async fn business(hand: Hand) {
    hand.client.batch_execute("BEGIN").await.unwrap();
    hand.client.execute(&hand.business, &[&"a"]).await.unwrap();
    hand.client.batch_execute("COMMIT").await.unwrap();
}

/// Key and business write in one transaction.
pub(super) async fn same_transaction(hand: Hand) {
    let key = key();
    hand.client.batch_execute("BEGIN").await.unwrap();
    hand.client.execute(&hand.claim, &[&key]).await.unwrap();
    hand.client.execute(&hand.business, &[&"a"]).await.unwrap();
    hand.client.execute(&hand.complete, &[&key, &ANSWER]).await.unwrap();
    hand.client.batch_execute("COMMIT").await.unwrap();
}

/// Claim and complete, each its own commit.
pub(super) async fn two_commits(hand: Hand) {
    let key = key();
    hand.client.execute(&hand.claim, &[&key]).await.unwrap();
    hand.client.execute(&hand.complete, &[&key, &ANSWER]).await.unwrap();
}

/// Scripts per second of `pgbench` with 64 clients and prepared statements.
pub(super) fn pgbench(server: &Postgres, length: Duration) -> f64 {
    let mut script = tempfile::NamedTempFile::new().unwrap();
    script.write_all(SCRIPT.as_bytes()).unwrap();
    // It takes whole seconds.
    let seconds = length.as_secs().max(1).to_string();
    let output = Command::new(server.programs().join("pgbench"))
        .args(["-n", "-M", "prepared", "-c", "64", "-j", "2", "-T", &seconds, "-f"])
        .arg(script.path())
        .args(["-h", "127.0.0.1", "-U", "postgres", "-p", &server.port().to_string(), "bench"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tps = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    tps.unwrap_or_else(|| panic!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)))
}
