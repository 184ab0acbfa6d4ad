#![doc = include_str!("../README.md")]

// The decisions are pure and take time and chance as arguments; everything that waits or sends goes
// through `drive.rs`.
//
// | file | idea |
// |---|---|
// | `judge.rs` | what one try means: final, again, wait, unknown |
// | `course.rs` | from try to try: how often, how long, until when |
// | `backoff.rs`, `retry_after.rs` | how long to pause |
// | `budget.rs`, `breaker.rs`, `hosts.rs` | what a host can be asked to bear |
// | `drive.rs` | sends and waits along a course |
// | `client.rs`, `request.rs`, `prepared.rs`, `exchange.rs`, `urls.rs` | the client over reqwest |
// | `layer.rs`, `answer_body.rs` | the same for any tower service |
// | `journal.rs`, `stored.rs` | one receipt per intent, and the bytes of the request in it |
// | `journaled.rs`, `resume.rs` | one intent of the journal, and all that are open |
// | `settle.rs` | the end of a doubt |
// | `address.rs` | a journal by address, behind the feature `journal` |
// | `tls.rs` | `https`, behind the feature `rustls` |
// | `report.rs`, `counts.rs` | how it went |

#[cfg(feature = "journal")]
mod address;
mod answer;
mod answer_body;
mod backoff;
mod breaker;
mod budget;
mod chance;
mod client;
mod counts;
mod course;
mod drive;
mod error;
mod exchange;
mod hosts;
mod journal;
mod journaled;
mod judge;
mod layer;
mod prepared;
mod report;
mod request;
mod resume;
mod retry_after;
mod settle;
mod stored;
mod terms;
#[cfg(feature = "rustls")]
mod tls;
mod urls;

pub use answer::Answer;
pub use answer_body::AnswerBody;
pub use backoff::Backoff;
pub use breaker::{Breaker, BreakerTerms, Passage};
pub use budget::{Budget, BudgetTerms};
pub use chance::Chance;
pub use client::{Builder, Client};
pub use counts::Counts;
pub use course::{Course, Next, Why};
pub use error::{Error, ErrorKind, Result};
pub use judge::{Departed, Guard, Judged, Said, Tried, judge};
pub use layer::{RetryLayer, RetryService};
pub use report::{FAILURES_MAX, Failure, Report, Source, What};
pub use request::Request;
pub use resume::Resumed;
pub use retry_after::{expires_in, retry_after};
pub use settle::Settlement;
pub use terms::Terms;

use onceward_http::headers::ONCEWARD_TRY as TRY_NUMBER;

/// The examples of the user's page, which must compile.
#[cfg(all(doctest, feature = "journal"))]
#[doc = include_str!("../../../docs/client.md")]
mod client_page {}
