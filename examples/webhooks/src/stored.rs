//! Events of Stripe that are stored first: acknowledged as soon as they are in the store, and handled afterwards, those of
//! one invoice in the order in which they arrived.
//!
//! Stripe sends events in any order, and order of arrival cannot repair that. So each event has a version, and one that is
//! older than what was applied to its invoice changes nothing. Version, change and receipt of the event are one commit:
//! an event that is delivered a second time finds its receipt, and a crash leaves nothing half done.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use onceward::{Lease, Onceward, Outcome, Policy, Result, Stopped};
use onceward_flows::{Advance, FlowTables, advance_to};
use onceward_http::webhook::{
    Arrivals, Deliver, Delivered, Deliveries, Receiver, Scheme, StoreFirst, StoredEvent, Verifier,
};
use onceward_http::{OncewardLayer, Route};
use onceward_stores::sql::sqlite::{SqliteTransactions, SqliteTx};
use serde_json::Value;
use tokio::task::JoinHandle;

const TABLES: &str = "CREATE TABLE IF NOT EXISTS invoices (id TEXT PRIMARY KEY, customer TEXT, status TEXT);
    CREATE TABLE IF NOT EXISTS history (number INTEGER PRIMARY KEY, line TEXT)";
const SET: &str = "INSERT INTO invoices (id, customer, status) VALUES (?1, ?2, ?3)
    ON CONFLICT (id) DO UPDATE SET customer = excluded.customer, status = excluded.status";

/// What is known of invoices, in the file that has the receipts too.
#[derive(Clone)]
pub struct Invoices(SqliteTransactions);

impl Invoices {
    /// Opens the file at this path, and makes the tables if they are not there.
    pub async fn open(path: &str) -> Result<Self> {
        // The versions are in a table of onceward-flows.
        FlowTables::open(&format!("sqlite:{path}")).await?;
        let file = SqliteTransactions::open(path);
        file.with(|connection| connection.execute_batch(TABLES)).await?;
        Ok(Self(file))
    }

    /// The status of an invoice that exists.
    pub async fn status(&self, invoice: &str) -> Result<String> {
        let invoice = invoice.to_owned();
        let select = "SELECT status FROM invoices WHERE id = ?1";
        self.0.with(move |connection| connection.query_row(select, [invoice], |row| row.get(0))).await
    }

    /// What was done about each event, in that order.
    pub async fn history(&self) -> Result<Vec<String>> {
        let select = "SELECT line FROM history ORDER BY number";
        self.0
            .with(move |connection| connection.prepare(select)?.query_map([], |row| row.get(0))?.collect())
            .await
    }
}

/// The route `/stripe/stored`, and the task that handles what it has stored, until `stop` is ready. The store of
/// `onceward` is the file of `invoices`.
pub fn app(
    onceward: &Onceward,
    secret: [u8; 32],
    stripe_secret: &str,
    invoices: Invoices,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(Router, JoinHandle<()>)> {
    let arrivals = Arrivals::new();
    let stored = StoreFirst::new(arrivals.clone()).with_order_by("body:/data/object/id".parse()?);
    let verifier = Verifier::new(Scheme::Stripe, [stripe_secret])?;
    let receiver = Receiver::new(verifier).with_store_first(stored);
    let route = Route::preset("webhook")?.to_builder().with_webhook(receiver).build()?;
    let handler = Arc::new(Handler { invoices, policy: route.policy().clone() });
    let handling = tokio::spawn(Deliveries::new(onceward.clone(), arrivals).run_until(handler, stop));
    let layer = OncewardLayer::new(onceward.clone(), secret, route);
    Ok((Router::new().route("/stripe/stored", post(not_called).layer(layer)), handling))
}

/// The layer stores events and acknowledges them itself.
async fn not_called() -> StatusCode {
    StatusCode::INTERNAL_SERVER_ERROR
}

struct Handler {
    invoices: Invoices,
    policy: Arc<Policy>,
}

impl Deliver for Handler {
    fn policy(&self, _: &StoredEvent) -> Option<Arc<Policy>> {
        Some(self.policy.clone())
    }

    fn deliver<'a>(
        &'a self,
        event: StoredEvent,
        lease: &'a Lease,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>> {
        Box::pin(async move {
            let Some(change) = InvoiceChange::of(&event.body) else {
                // Of no interest.
                return Delivered::Taken;
            };
            match lease.transact(&self.invoices.0, |tx| change.clone().apply(tx)).await {
                Ok(_) => Delivered::Taken,
                Err(error) => Delivered::Failed(error.to_string()),
            }
        })
    }
}

/// An event about an invoice. It carries the whole invoice, so that none before it is needed.
#[derive(Clone)]
struct InvoiceChange {
    invoice: String,
    customer: String,
    status: String,
    version: u64,
}

impl InvoiceChange {
    fn of(body: &[u8]) -> Option<Self> {
        let event: Value = serde_json::from_slice(body).ok()?;
        let invoice = &event["data"]["object"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let status = text(&invoice["status"]).filter(|_| invoice["object"] == "invoice")?;
        Some(Self {
            invoice: text(&invoice["id"])?,
            customer: text(&invoice["customer"])?,
            version: version(event["created"].as_u64()?, &status),
            status,
        })
    }

    async fn apply(self, mut tx: SqliteTx) -> Result<Outcome, Stopped> {
        let Self { invoice, customer, status, version } = self;
        let line = match advance_to(&mut tx, "stripe", &invoice, version).await? {
            Advance::Applied => {
                tx.lock().execute(SET, (&invoice, &customer, &status))?;
                format!("{invoice} is {status}")
            }
            _ => format!("{invoice} was {status} before"),
        };
        tx.lock().execute("INSERT INTO history (line) VALUES (?1)", [line])?;
        Ok(Outcome::succeeded(""))
    }
}

/// Stripe numbers no events. They are ordered by the second in which they happened and, within it, by how far the invoice
/// was: its status goes forward only.
fn version(created: u64, status: &str) -> u64 {
    let rank = match status {
        "draft" => 0,
        "open" => 1,
        "uncollectible" => 2,
        _ => 3,
    };
    created * 4 + rank
}
