//! `onceward sagas` on a store that it opens itself.

use onceward::{Cursor, Error, ErrorKind, Id, Onceward, Result};
use onceward_flows::{Direction, SagaChange, SagaFilter, SagaState, SagaView, SettleStep, StoredSagas};

use super::{Command, EndArgs, SagaArgs, Stop, print, print_page};
use crate::admin::sagas::shape::{SagaShown, id};

pub async fn run(store: &str, scope: Option<&str>, command: Command) -> Result<(), Stop> {
    let change = async {
        let onceward = Onceward::new(onceward_stores::open(store).await?)?;
        apply(&StoredSagas::new(&onceward), scope, command).await
    };
    match change.await {
        Ok(SagaChange::Applied) => Ok(()),
        Ok(SagaChange::Ended) => Err(Stop::Refused("the saga has ended".into())),
        Ok(_) => {
            Err(Stop::Refused("there is no such saga or step, or it does not need this decision".into()))
        }
        Err(error) if error.kind() == ErrorKind::Conflict => Err(Stop::Refused(error.to_string())),
        Err(error) => Err(Stop::Failed(error.to_string())),
    }
}

async fn apply(stored: &StoredSagas, scope: Option<&str>, command: Command) -> Result<SagaChange> {
    let direction = |undo: bool| if undo { Direction::Undo } else { Direction::Action };
    let id = |saga: &SagaArgs| -> Result<Id> { id(scope, &saga.name, &saga.key) };
    match command {
        Command::List { name, needs_person, limit, after } => {
            let after = after.as_deref().map(cursor).transpose()?;
            let filter = SagaFilter::default().with_name(name).with_scope(scope.map(str::to_owned));
            let page = stored.list(&filter, after, limit).await?;
            let wanted = |view: &&SagaView| !needs_person || matches!(view.state, SagaState::NeedsPerson(_));
            let sagas: Vec<_> = page.sagas.iter().filter(wanted).map(SagaShown::in_list).collect();
            let hex = |Cursor(next): Cursor| {
                next.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
            };
            print_page(&sagas, page.next.map(hex));
            Ok(SagaChange::Applied)
        }
        Command::Show(saga) => match stored.show(&id(&saga)?).await? {
            Some(view) => {
                print!("{}", print::detail(&SagaShown::new(&view)));
                Ok(SagaChange::Applied)
            }
            None => Ok(SagaChange::NothingToDo),
        },
        Command::Retry { saga, step, undo } => {
            let step = step.as_deref().map(|step| (step, direction(undo)));
            stored.retry(&id(&saga)?, step).await
        }
        Command::Undo { saga, reason } => stored.undo(&id(&saga)?, &reason).await,
        Command::Settle { saga, step, undo, end } => {
            stored.settle(&id(&saga)?, &step, direction(undo), end.settle()).await
        }
    }
}

/// The end of a page as it was printed.
fn cursor(text: &str) -> Result<Cursor> {
    let wrong = || Error::new(ErrorKind::Invalid, "--after is not what `sagas list` printed");
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return Err(wrong());
    }
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong());
    let bytes = (0..text.len()).step_by(2).map(byte).collect::<Result<Vec<u8>>>()?;
    Ok(Cursor(bytes.into()))
}

impl EndArgs {
    fn settle(self) -> SettleStep {
        match self {
            Self { done: Some(result), .. } => SettleStep::Done(result.into()),
            Self { refused: Some(reason), .. } => SettleStep::Refused(reason),
            Self { failed: Some(reason), .. } => SettleStep::Failed(reason),
            Self { force_not_done: true, .. } => SettleStep::ForceNotDone,
            _ => SettleStep::NotDone,
        }
    }
}
