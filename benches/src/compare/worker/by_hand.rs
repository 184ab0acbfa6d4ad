//! A hand-written queue: a table, and workers that lock rows with `FOR UPDATE SKIP LOCKED`. Claim, work and
//! completion are one transaction, so a task costs one commit for its insert and one for its completion, or for a
//! hundred of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, Statement};

use super::{ANSWER, INPUT, SINGLY, WORKERS, Waiting, key, tell, wait_for};
use crate::load::callers;
use crate::turns::Turn;

pub(super) const TABLES: &str = "CREATE TABLE tasks (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        key text NOT NULL UNIQUE, state text NOT NULL DEFAULT 'waiting', input text NOT NULL, answer text);
    CREATE INDEX tasks_waiting ON tasks (id) WHERE state = 'waiting'";
const ENQUEUE: &str = "INSERT INTO tasks (key, input) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING";
const CLAIM: &str = "SELECT id, key, input FROM tasks WHERE state = 'waiting' ORDER BY id
    FOR UPDATE SKIP LOCKED LIMIT $1";
const COMPLETE: &str = "UPDATE tasks SET state = 'done', answer = $2 WHERE id = ANY ($1)";
/// Between two looks at an empty queue.
const PAUSE: Duration = Duration::from_millis(2);

/// Connections for those who enqueue, and for those who work.
pub(super) struct Queue {
    callers: Vec<(Arc<Client>, Statement)>,
    workers: Vec<Arc<Client>>,
}

impl Queue {
    pub(super) async fn connect(url: &str) -> Self {
        let (mut callers, mut workers) = (Vec::new(), Vec::new());
        // A pool of as many connections as work at once serves all who enqueue.
        for _ in 0..SINGLY * WORKERS {
            let client = connect(url).await;
            let enqueue = client.prepare(ENQUEUE).await.unwrap();
            callers.push((client, enqueue));
            workers.push(connect(url).await);
        }
        Self { callers, workers }
    }

    /// Tasks per second, with `claimed` tasks in each claim.
    pub(super) async fn rate(&self, claimed: usize, count: usize, length: Duration) -> Turn {
        let waiting = Waiting::default();
        let mut working = JoinSet::new();
        // As many tasks are worked on at once, whatever their number in a claim.
        let connections = if claimed == 1 { self.workers.len() } else { WORKERS };
        for client in &self.workers[..connections] {
            working.spawn(work(client.clone(), claimed, waiting.clone()));
        }
        let clients = self.callers.clone();
        let call = move |caller: usize| {
            let (client, enqueue) = clients[caller % clients.len()].clone();
            let (key, waiting) = (key(), waiting.clone());
            async move {
                let done = wait_for(&waiting, &key);
                client.execute(&enqueue, &[&key, &INPUT]).await.unwrap();
                done.await.unwrap();
            }
        };
        let turn = callers(count, tokio::time::sleep(length), call).await;
        working.shutdown().await;
        // All at once: a claim may be waiting for another's transaction to end.
        let mut ending = JoinSet::new();
        for client in &self.workers {
            let client = client.clone();
            ending.spawn(async move { client.batch_execute("ROLLBACK").await.unwrap() });
        }
        ending.join_all().await;
        turn
    }
}

async fn connect(url: &str) -> Arc<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    Arc::new(client)
}

async fn work(client: Arc<Client>, claimed: usize, waiting: Waiting) {
    let claimed = i64::try_from(claimed).unwrap();
    let claim = client.prepare(CLAIM).await.unwrap();
    let complete = client.prepare(COMPLETE).await.unwrap();
    loop {
        client.batch_execute("BEGIN").await.unwrap();
        let rows = client.query(&claim, &[&claimed]).await.unwrap();
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if !ids.is_empty() {
            for row in &rows {
                assert_eq!(row.get::<_, &str>(2), INPUT);
                tell(&waiting, row.get(1));
            }
            client.execute(&complete, &[&ids, &ANSWER]).await.unwrap();
        }
        client.batch_execute("COMMIT").await.unwrap();
        if rows.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
