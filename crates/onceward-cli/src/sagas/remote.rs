//! `onceward sagas --admin URL`: through the receipts API of a running process.

use super::{Command, Stop, print, print_page};
use crate::admin::sagas::shape::{RetrySagaAsked, SagaShown, SagasShown, SettleSagaAsked, UndoSagaAsked};
use crate::receipts::admin_client::{AdminClient, read};

pub async fn run(
    client: &AdminClient,
    scope: Option<&str>,
    by: Option<String>,
    command: Command,
) -> Result<(), Stop> {
    call(client, scope, by, command).await.map_err(Stop::Refused)
}

async fn call(
    client: &AdminClient,
    scope: Option<&str>,
    by: Option<String>,
    command: Command,
) -> Result<(), String> {
    let own_scope = scope.map(str::to_owned);
    match command {
        Command::List { name, needs_person, limit, after } => {
            let limit = limit.to_string();
            let query = [
                ("scope", scope),
                ("name", name.as_deref()),
                ("needs_person", needs_person.then_some("true")),
                ("limit", Some(limit.as_str())),
                ("cursor", after.as_deref()),
            ];
            let page: SagasShown = read(&client.get("/v1/sagas", &query).await?)?;
            print_page(&page.sagas, page.next);
            Ok(())
        }
        Command::Show(saga) => {
            let query = [("scope", scope), ("name", Some(&*saga.name)), ("key", Some(&*saga.key))];
            let shown: SagaShown = read(&client.get("/v1/saga", &query).await?)?;
            print!("{}", print::detail(&shown));
            Ok(())
        }
        Command::Retry { saga, step, undo } => {
            let (name, key) = (saga.name, saga.key);
            let asked = RetrySagaAsked { scope: own_scope, name, key, step, undo, by, reason: None };
            client.post("/v1/retry-saga", &asked).await
        }
        Command::Undo { saga, reason } => {
            let asked = UndoSagaAsked { scope: own_scope, name: saga.name, key: saga.key, reason, by };
            client.post("/v1/undo-saga", &asked).await
        }
        Command::Settle { saga, step, undo, end } => {
            let asked = SettleSagaAsked {
                scope: own_scope,
                name: saga.name,
                key: saga.key,
                step,
                undo,
                done: end.done,
                done_base64: None,
                refused: end.refused,
                failed: end.failed,
                not_done: end.not_done || end.force_not_done,
                force: end.force_not_done,
                by,
                reason: None,
            };
            client.post("/v1/settle-saga", &asked).await
        }
    }
}
