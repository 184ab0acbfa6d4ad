//! Lists receipts, decoded: one that cannot be read has an error of its own and hides no other.

use super::sealed::open;
use crate::error::Error;
use crate::id::Id;
use crate::receipt::Receipt;
use crate::store::{Age, Cursor, Due, Page, State};

/// One page of receipts.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReceiptPage {
    /// The receipts, each with its id.
    pub found: Vec<(Id, Receipt)>,
    /// Receipts that belong here and cannot be read.
    pub unreadable: Vec<(Id, Unreadable)>,
    /// Where to continue; `None` at the end.
    pub next: Option<Cursor>,
}

/// A receipt that cannot be read, and what the store knows of it all the same.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unreadable {
    /// Why not.
    pub error: Error,
    /// In which state the store has it; `None` if that cannot be read either.
    pub state: Option<State>,
    /// When it falls due.
    pub due: Option<Due>,
    /// How long ago it was written.
    pub age: Option<Age>,
}

/// Decodes what a scan has found.
pub(crate) fn open_page(page: Page) -> ReceiptPage {
    let unreadable = page.unreadable.into_iter();
    let unreadable =
        unreadable.map(|(id, error)| (id, Unreadable { error, state: None, due: None, age: None }));
    let mut opened =
        ReceiptPage { unreadable: unreadable.collect(), next: page.next, ..ReceiptPage::default() };
    for (id, record) in page.found {
        match open(&record) {
            Ok(receipt) => opened.found.push((id, receipt)),
            Err(error) => {
                let (state, due, age) = (Some(record.state), Some(record.due), Some(record.age));
                opened.unreadable.push((id, Unreadable { error, state, due, age }));
            }
        }
    }
    opened
}
