//! Dead letters in the receipts API: for operators, with the same token, audit and document as receipts. Those of consumers
//! whose database is the store of this process.

pub mod shape;

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use onceward::{Error, ErrorKind, Id, Policy};
use onceward_flows::{DeadLetter, DeadLetterFilter, DeadLetters, FlowTables};
use onceward_http::admin::Admin;
use onceward_http::admin::extend::{ApiResult, AuditEntry, Json, Problem, QueryParams};
use onceward_http::admin::shape::ProblemShown;
use onceward_stores::sql::Migrations;
use tokio::sync::OnceCell;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use shape::{
    ChangeDeadLetterAsked, ChangeDeadLettersAsked, DeadLetterAsked, DeadLetterChange, DeadLetterShown,
    DeadLettersAsked, DeadLettersChanged, DeadLettersShown, SOURCE,
};

/// Letters in one answer, by default and at most; with their payloads, which may be large, fewer.
const LIST_LETTERS: u32 = 100;
const LIST_LETTERS_MAX: u32 = 1_000;
const CONTENTS_MAX: u32 = 50;
/// Letters that are changed for one answer.
const CHANGES_MAX: u32 = 100;
/// Retries in a second, if nothing is said.
const PACE: u32 = 50;
/// An answer to a retry of many takes no longer than this, whatever the pace.
const RETRY_SECONDS_MAX: u32 = 10;

struct Letters {
    admin: Admin,
    store: String,
    /// Opened when they are asked for: most processes have no messages.
    tables: OnceCell<FlowTables>,
}

type LettersState = State<Arc<Letters>>;

/// The routes of dead letters in the database at `store`, and what describes them.
pub fn routes(admin: &Admin, store: &str) -> OpenApiRouter {
    let letters = Letters { admin: admin.clone(), store: store.to_owned(), tables: OnceCell::new() };
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(retry))
        .routes(routes!(settle))
        .routes(routes!(discard))
        .routes(routes!(change_matching))
        .with_state(Arc::new(letters))
}

impl Letters {
    async fn of(&self, source: Option<&str>, consumer: &str) -> ApiResult<DeadLetters> {
        let source = source.unwrap_or(SOURCE);
        // Both are parts of the idempotency key of every message.
        Id::new(source, consumer, "message")?;
        let tables = self.tables().await?.clone();
        Ok(DeadLetters::new(tables, self.admin.onceward().clone(), source, consumer))
    }

    async fn tables(&self) -> ApiResult<&FlowTables> {
        let open = || FlowTables::open_with(&self.store, Migrations::Require);
        self.tables.get_or_try_init(open).await.map_err(no_messages)
    }

    async fn changed(
        &self,
        action: &'static str,
        asked: &ChangeDeadLetterAsked,
        message: &str,
        change: impl Future<Output = onceward::Result<bool>>,
    ) -> ApiResult<StatusCode> {
        let entry = AuditEntry::new(action, asked.by.as_deref(), asked.reason.as_deref())?;
        let entry = entry.of(&Id::new(asked.source.as_deref().unwrap_or(SOURCE), &asked.consumer, message)?);
        let change = async {
            match change.await {
                Ok(true) => Ok(StatusCode::NO_CONTENT),
                Ok(false) => Err(no_letter()),
                Err(error) if error.kind() == ErrorKind::Conflict => Err(not_now(&error)),
                Err(error) => Err(error.into()),
            }
        };
        self.admin.audited(entry, change).await
    }
}

/// Lists the dead letters of a consumer, or of all, in the order in which they came: a page at a time. With `contents` it is
/// an export.
#[utoipa::path(get, path = "/v1/dead-letters", operation_id = "dead_letters", params(DeadLettersAsked), responses(
    (status = 200, body = DeadLettersShown),
    (status = 409, description = "no-messages: the store of this process has no messages", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn list(
    State(state): LettersState,
    QueryParams(asked): QueryParams<DeadLettersAsked>,
) -> ApiResult<Json<DeadLettersShown>> {
    let filter = asked.filter()?;
    let contents = asked.contents.unwrap_or(false);
    let limit_max = if contents { CONTENTS_MAX } else { LIST_LETTERS_MAX };
    let limit = asked.limit.unwrap_or(LIST_LETTERS).clamp(1, limit_max);
    let after = asked.after.unwrap_or(0);
    let mut page = match (&asked.consumer, &asked.source) {
        (Some(consumer), source) => {
            let letters = state.of(source.as_deref(), consumer).await?;
            letters.list(&filter, after, limit + 1).await?
        }
        (None, None) => state.tables().await?.dead_letters_of_all(&filter, after, limit + 1).await?,
        (None, Some(_)) => return Err(Problem::Invalid("give the `consumer` of this `source`".into())),
    };
    let has_more = page.len() > limit as usize;
    page.truncate(limit as usize);
    let next = page.last().filter(|_| has_more).map(|last| last.number);
    let shown = if contents { DeadLetterShown::new } else { DeadLetterShown::in_list };
    Ok(Json(DeadLettersShown { dead_letters: page.iter().map(shown).collect(), next }))
}

/// Shows one dead letter with its headers and its payload.
#[utoipa::path(get, path = "/v1/dead-letter", operation_id = "dead_letter", params(DeadLetterAsked), responses(
    (status = 200, body = DeadLetterShown),
    (status = 404, description = "no-dead-letter", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn show(
    State(state): LettersState,
    QueryParams(asked): QueryParams<DeadLetterAsked>,
) -> ApiResult<Json<DeadLetterShown>> {
    let letters = state.of(asked.source.as_deref(), &asked.consumer).await?;
    let letter = find(&letters, &asked.message).await?.ok_or_else(no_letter)?;
    Ok(Json(DeadLetterShown::new(&letter)))
}

/// Has a dead letter tried again, and after it all that wait behind it, in their order. The consumer does it. With
/// `ordering_key` it begins with the first one of that key.
#[utoipa::path(post, path = "/v1/retry-dead-letter", operation_id = "retry_dead_letter", request_body = ChangeDeadLetterAsked, responses(
    (status = 204, description = "It will be tried again."),
    (status = 404, description = "no-dead-letter", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "not-now: it waits behind another one", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn retry(
    State(state): LettersState,
    Json(asked): Json<ChangeDeadLetterAsked>,
) -> ApiResult<StatusCode> {
    let letters = state.of(asked.source.as_deref(), &asked.consumer).await?;
    let message = match (&asked.message, &asked.ordering_key) {
        (Some(message), None) => message.clone(),
        (None, Some(key)) => {
            let of_key = DeadLetterFilter::default().with_ordering_key(key);
            let first = letters.list(&of_key, 0, 1).await?.pop().ok_or_else(no_letter)?;
            first.message.id().to_owned()
        }
        _ => return Err(Problem::Invalid("give either `message` or `ordering_key`".into())),
    };
    state.changed("retry-dead-letter", &asked, &message, letters.retry(&message)).await
}

/// Records a dead letter as handled, because its effect was brought about by other means. Copies of it are then recognised.
/// Those behind it stay.
#[utoipa::path(post, path = "/v1/settle-dead-letter", operation_id = "settle_dead_letter", request_body = ChangeDeadLetterAsked, responses(
    (status = 204, description = "It is recorded as handled."),
    (status = 404, description = "no-dead-letter", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "not-now: it is being handled", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn settle(
    State(state): LettersState,
    Json(asked): Json<ChangeDeadLetterAsked>,
) -> ApiResult<StatusCode> {
    let (letters, message) =
        (state.of(asked.source.as_deref(), &asked.consumer).await?, only_message(&asked)?);
    let (message, policy) = (message.to_owned(), Policy::queue());
    let change = Box::pin(letters.settle_done(&message, &policy));
    state.changed("settle-dead-letter", &asked, &message, change).await
}

/// Discards a dead letter: it will not be handled, also if a copy of it arrives within 7 days. Those behind it stay.
#[utoipa::path(post, path = "/v1/discard-dead-letter", operation_id = "discard_dead_letter", request_body = ChangeDeadLetterAsked, responses(
    (status = 204, description = "It is gone."),
    (status = 404, description = "no-dead-letter", body = ProblemShown, content_type = "application/problem+json"),
    (status = 409, description = "not-now: it is being handled", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn discard(
    State(state): LettersState,
    Json(asked): Json<ChangeDeadLetterAsked>,
) -> ApiResult<StatusCode> {
    let (letters, message) =
        (state.of(asked.source.as_deref(), &asked.consumer).await?, only_message(&asked)?);
    let (message, policy) = (message.to_owned(), Policy::queue());
    let change = async {
        // A discard of what is no dead letter would close the key of a message that is still to come.
        match find(&letters, &message).await? {
            Some(_) => Box::pin(letters.discard(&message, &policy)).await,
            None => Ok(false),
        }
    };
    state.changed("discard-dead-letter", &asked, &message, change).await
}

/// Retries, settles or discards one page of the dead letters that match. Send it again with the `next` of the answer as
/// `after` until there is none. A slow `pace` makes the pages shorter.
#[utoipa::path(post, path = "/v1/change-dead-letters", operation_id = "change_dead_letters", request_body = ChangeDeadLettersAsked, responses(
    (status = 200, description = "What was changed.", body = DeadLettersChanged),
    (status = "4XX", description = "invalid-request, no-messages", body = ProblemShown, content_type = "application/problem+json"),
))]
async fn change_matching(
    State(state): LettersState,
    Json(asked): Json<ChangeDeadLettersAsked>,
) -> ApiResult<Json<DeadLettersChanged>> {
    let (filter, after) = (asked.filter()?, asked.after.unwrap_or(0));
    let letters = state.of(asked.source.as_deref(), &asked.consumer).await?;
    let limit = asked.limit.unwrap_or(CHANGES_MAX).clamp(1, CHANGES_MAX);
    if asked.dry_run {
        let page = letters.list(&filter, after, LIST_LETTERS_MAX).await?;
        let next = page.last().map(|last| last.number);
        return Ok(Json(DeadLettersChanged { matched: page.len() as u64, changed: 0, next }));
    }
    let how = match asked.change {
        DeadLetterChange::Retry => "retry",
        DeadLetterChange::Settle => "settle",
        DeadLetterChange::Discard => "discard",
    };
    let entry = AuditEntry {
        scope: Some(asked.source.clone().unwrap_or_else(|| SOURCE.to_owned())),
        operation: Some(asked.consumer.clone()),
        ..AuditEntry::new("change-dead-letters", asked.by.as_deref(), asked.reason.as_deref())?
    };
    let change = async {
        if asked.change == DeadLetterChange::Retry {
            let pace = asked.pace.unwrap_or(PACE).max(1);
            let limit = limit.min(pace.saturating_mul(RETRY_SECONDS_MAX));
            let found = letters.retry_page(&filter, after, limit, pace).await?;
            return Ok(DeadLettersChanged {
                matched: found.matched,
                changed: found.retried,
                next: found.next,
            });
        }
        let page = letters.list(&filter, after, limit).await?;
        let mut changed = 0;
        for letter in &page {
            let (id, policy) = (letter.message.id(), Policy::queue());
            let result = match asked.change {
                DeadLetterChange::Settle => letters.settle_done(id, &policy).await,
                _ => letters.discard(id, &policy).await,
            };
            match result {
                Ok(is_there) => changed += u64::from(is_there),
                // It is being handled: what comes of it is seen in the next list.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
        let next = page.last().map(|last| last.number);
        Ok(DeadLettersChanged { matched: page.len() as u64, changed, next })
    };
    state.admin.audited(entry.how(Some(how)), change).await.map(Json)
}

async fn find(letters: &DeadLetters, message: &str) -> onceward::Result<Option<DeadLetter>> {
    let mut filter = DeadLetterFilter::default();
    filter.message_id = Some(message.to_owned());
    Ok(letters.list(&filter, 0, 1).await?.pop())
}

fn only_message(asked: &ChangeDeadLetterAsked) -> ApiResult<&str> {
    match (&asked.message, &asked.ordering_key) {
        (Some(message), None) => Ok(message),
        _ => Err(Problem::Invalid("give the `message`, and no `ordering_key`".into())),
    }
}

fn no_letter() -> Problem {
    Problem::Other {
        name: "no-dead-letter",
        status: StatusCode::NOT_FOUND,
        title: "There is no such dead letter",
        detail: "This consumer has none with this id or ordering key.".into(),
    }
}

fn not_now(error: &Error) -> Problem {
    Problem::Other {
        name: "not-now",
        status: StatusCode::CONFLICT,
        title: "The dead letter cannot be changed now",
        detail: format!("Nothing was changed: {error}."),
    }
}

/// The store is no database, or has no tables for messages.
fn no_messages(error: Error) -> Problem {
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::Foreign | ErrorKind::Unfit => Problem::Other {
            name: "no-messages",
            status: StatusCode::CONFLICT,
            title: "The store of this process has no messages",
            detail: format!("Ask a process whose store is the database of the consumer ({error})."),
        },
        _ => error.into(),
    }
}
