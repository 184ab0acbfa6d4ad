//! Runs the conformance suites for databases: transactions through every driver, and unreadable rows on every engine.

use std::sync::Arc;

use onceward::{ErrorKind, Fingerprint, Id, Result, Stopped, Store};
use onceward_stores::sql::{Dialect, SqlTransaction, Value};
use onceward_verify::conformance::{self, Damage, Harness};

use crate::bank::{
    Bank, MySqlBank, PostgresBank, Process, SqliteBank, Tx, ask, first_of, on_every_engine, said,
};

/// A bank with a store and the transactions of one process.
struct Open<B: Bank> {
    bank: B,
    store: Arc<dyn Store>,
    transactions: B::T,
}

impl<B: Bank> Open<B> {
    async fn new() -> Result<Self> {
        let bank = B::open().expect("there is such a server");
        let store = onceward_stores::open(&bank.url()).await?;
        let transactions = bank.transactions().await;
        Ok(Self { bank, store, transactions })
    }
}

impl<B: Bank> Harness for Open<B> {
    type T = B::T;

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn transactions(&self) -> &B::T {
        &self.transactions
    }

    async fn write(&self, tx: &mut Tx<B>, key: &str) -> Result<(), Stopped> {
        let add = match tx.dialect() {
            Dialect::Postgres => {
                "INSERT INTO counters VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET count = counters.count + 1"
            }
            Dialect::Sqlite => {
                "INSERT INTO counters VALUES (?1, 1) ON CONFLICT (name) DO UPDATE SET count = count + 1"
            }
            _ => "INSERT INTO counters VALUES (?, 1) ON DUPLICATE KEY UPDATE count = count + 1",
        };
        tx.fetch(add, &[Value::Text(key)]).await?;
        Ok(())
    }

    async fn count(&self, key: &str) -> Result<u64, Stopped> {
        let count = format!("SELECT coalesce(sum(count), 0) FROM counters WHERE name = '{key}'");
        Ok(self.bank.sql(&count).parse().unwrap())
    }
}

async fn transactions<B: Bank>(_: &B) {
    conformance::transactions(Open::<B>::new).await;
}

on_every_engine!(transactions);

/// What is damaged in a row.
trait RowDamage: Send + Sync + 'static {
    const SET: &'static str;
}

/// It has the state of a later version.
struct UnknownState;
/// It has an invalid version.
struct InvalidVersion;

impl RowDamage for UnknownState {
    const SET: &'static str = "state = 'paused'";
}

impl RowDamage for InvalidVersion {
    const SET: &'static str = "version = 0";
}

struct Damaged<B: Bank, H>(Open<B>, std::marker::PhantomData<H>);

impl<B: Bank, H: RowDamage> Damage for Damaged<B, H> {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0.store)
    }

    async fn damage(&self, id: &Id) {
        let (set, operation) = (H::SET, id.operation());
        self.0.bank.sql(&format!("UPDATE onceward_receipts SET {set} WHERE operation = '{operation}'"));
    }
}

async fn unreadable<B: Bank>(bank: &B) {
    conformance::unreadable(async || {
        Ok(Damaged::<B, UnknownState>(Open::new().await?, std::marker::PhantomData))
    })
    .await;
    conformance::unreadable(async || {
        Ok(Damaged::<B, InvalidVersion>(Open::new().await?, std::marker::PhantomData))
    })
    .await;
    unreadable_receipts(bank).await;
}

/// Bytes that the engine cannot read fail their own id, and no other one in the batch.
async fn unreadable_receipts<B: Bank>(bank: &B) {
    let process = Process::new(bank, "one").await;
    let keys = ["sound", "of the future", "flipped", "cut off", "empty"];
    for key in keys {
        assert_eq!(said(process.charge(ask(key)).await), first_of("one", key));
    }
    rewrite(bank, "of the future", |bytes| bytes[0] = 200);
    rewrite(bank, "flipped", |bytes| bytes[20] ^= 4);
    rewrite(bank, "cut off", |bytes| bytes.truncate(9));
    rewrite(bank, "empty", Vec::clear);
    // Another process, which has nothing in its cache. All ask at once, and one for something new.
    let other = Process::new(bank, "two").await;
    let asked = keys.into_iter().chain(["new"]).map(|key| (key, other.charge_beside(ask(key))));
    for (key, answer) in asked.collect::<Vec<_>>() {
        match answer.await.unwrap() {
            Ok(answer) if key == "new" => assert_eq!(said(Ok(answer)), first_of("two", "new")),
            Ok(answer) => assert_eq!((key, said(Ok(answer)).1), ("sound", true)),
            Err(error) => {
                assert!(key != "sound" && key != "new", "{key}: {error}");
                assert_eq!(error.kind(), ErrorKind::Damaged, "{key}: {error}");
                let upgrade = error.to_string().contains("upgrade onceward");
                assert_eq!(upgrade, key == "of the future", "{error}");
            }
        }
        assert_eq!(bank.count(key), 1, "{key}");
    }
    // Nothing was made of them: they are as they were, for a version that can read them.
    let shown = other.onceward.receipt(ask("of the future").id()).await;
    assert_eq!(shown.unwrap_err().kind(), ErrorKind::Damaged);
    // Another fingerprint does not get past them either.
    let policy = ask("flipped").policy().clone();
    let reused = onceward::Ask::new(ask("flipped").id().clone(), Fingerprint::of(b"13"), policy);
    assert_eq!(other.charge(reused).await.unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(bank.count("flipped"), 1);
}

/// Changes the bytes of a receipt behind our back.
fn rewrite<B: Bank>(bank: &B, key: &str, change: impl Fn(&mut Vec<u8>)) {
    let url = bank.url();
    let is_postgres = url.starts_with("postgres");
    let (column, hex) = match url.split_once(':').unwrap().0 {
        "postgres" => ("key", "encode(receipt, 'hex')"),
        "mysql" => ("`key`", "hex(receipt)"),
        _ => ("key", "hex(receipt)"),
    };
    let digits = bank.sql(&format!("SELECT {hex} FROM onceward_receipts WHERE {column} = '{key}'"));
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let mut bytes: Vec<u8> = (0..digits.len()).step_by(2).map(digit).collect();
    change(&mut bytes);
    let digits = bytes.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
    let literal = if is_postgres { format!("'\\x{digits}'::bytea") } else { format!("X'{digits}'") };
    bank.sql(&format!("UPDATE onceward_receipts SET receipt = {literal} WHERE {column} = '{key}'"));
}

mod rows {
    use super::{MySqlBank, PostgresBank, SqliteBank, on_every_engine, unreadable};

    on_every_engine!(unreadable: postgres PostgresBank, mysql MySqlBank, sqlite SqliteBank);
}
