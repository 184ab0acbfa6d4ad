//! Preconditions of a request: `If-Match`, `If-None-Match`, `If-Unmodified-Since`, `If-Modified-Since` (RFC 9110,
//! section 13), and how they are evaluated against the current version of a resource.
//!
//! Receipts come first and preconditions second: a retry whose first try succeeded carries a tag that is stale
//! *because* it succeeded, and gets its recorded answer. So a handler evaluates them, inside the layer.

mod entity_tag;
#[cfg(feature = "axum")]
mod extract;
mod rule;

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};
use http::{Method, Response, StatusCode};

pub use entity_tag::{EntityTag, MalformedTag};
pub use rule::PreconditionRule;

use crate::problem::Problem;

/// Entity tags in one field, at most.
const TAGS_MAX: usize = 256;

/// The preconditions of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preconditions {
    /// `If-Match`: carried out if the current version is one of these.
    pub if_match: Option<TagCondition>,
    /// `If-None-Match`: carried out if it is none of these.
    pub if_none_match: Option<TagCondition>,
    /// `If-Unmodified-Since`: carried out if it has not changed since. Ignored if there is an `If-Match`.
    pub if_unmodified_since: Option<SystemTime>,
    /// `If-Modified-Since`: carried out if it has. Ignored if there is an `If-None-Match`, and for writes.
    pub if_modified_since: Option<SystemTime>,
}

/// The tags of one field.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagCondition {
    /// `*`: any version, as long as there is one.
    Any,
    /// One of these.
    Tags(Vec<EntityTag>),
}

/// A precondition that cannot be read. It is answered with 400, never taken for one that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedPrecondition {
    field: HeaderName,
    why: MalformedTag,
}

impl fmt::Display for MalformedPrecondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the field {} cannot be read: {}", self.field, self.why)
    }
}

impl std::error::Error for MalformedPrecondition {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}

/// The current version of a resource, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Validators {
    /// Whether there is a current version at all.
    pub exists: bool,
    /// Its tag.
    pub tag: Option<EntityTag>,
    /// When it was last changed.
    pub last_modified: Option<SystemTime>,
}

impl Validators {
    /// Of a resource that is not there.
    pub fn absent() -> Self {
        Self::default()
    }

    /// Of a resource that is there.
    pub fn existing() -> Self {
        Self { exists: true, ..Self::default() }
    }

    /// Sets the tag of the current version.
    pub fn with_tag(mut self, tag: EntityTag) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Sets when it was last changed. HTTP counts whole seconds: a change within the same second is not seen, so prefer
    /// a tag.
    pub fn with_last_modified(mut self, at: SystemTime) -> Self {
        self.last_modified = Some(at);
        self
    }
}

/// The result of evaluating preconditions.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// Carry it out.
    Proceed,
    /// A read of what the client has already: 304.
    NotModified,
    /// Something else is there than the client expects: 412.
    Failed,
}

impl Evaluation {
    /// The status of the answer; `None` if the request is to be carried out.
    pub fn status(self) -> Option<StatusCode> {
        match self {
            Self::Proceed => None,
            Self::NotModified => Some(StatusCode::NOT_MODIFIED),
            Self::Failed => Some(StatusCode::PRECONDITION_FAILED),
        }
    }
}

impl Preconditions {
    /// Reads them from the fields of a request. A date that cannot be read is ignored, as RFC 9110 demands; a tag that
    /// cannot be read is an error.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, MalformedPrecondition> {
        Ok(Self {
            if_match: TagCondition::read(headers, &IF_MATCH)?,
            if_none_match: TagCondition::read(headers, &IF_NONE_MATCH)?,
            if_unmodified_since: read_date(headers, &IF_UNMODIFIED_SINCE),
            if_modified_since: read_date(headers, &IF_MODIFIED_SINCE),
        })
    }

    /// Returns whether there is one that protects an update: `If-Match`, `If-None-Match` or `If-Unmodified-Since`.
    pub fn protects_update(&self) -> bool {
        self.if_match.is_some() || self.if_none_match.is_some() || self.if_unmodified_since.is_some()
    }

    /// The refusal of a request whose precondition does not hold. It names the current version and, where `If-Match`
    /// is what does not hold, those that the client expected.
    pub fn refusal(&self, current: Option<EntityTag>) -> Problem {
        let expected = match &self.if_match {
            Some(TagCondition::Tags(tags)) if self.if_match_failed(current.as_ref()) => tags.clone(),
            _ => Vec::new(),
        };
        Problem::PreconditionFailed { expected, current }
    }

    /// Whether, of the conditions that there are, `If-Match` is the one that does not hold for this version.
    fn if_match_failed(&self, current: Option<&EntityTag>) -> bool {
        let current = Validators { exists: current.is_some(), tag: current.cloned(), last_modified: None };
        let holds = |condition: &TagCondition| condition.matches(&current, EntityTag::is_same_strong);
        self.if_none_match.is_none() || !self.if_match.as_ref().is_some_and(holds)
    }

    /// Evaluates the preconditions in the order of RFC 9110, section 13.2.2.
    pub fn evaluate(&self, method: &Method, current: &Validators) -> Evaluation {
        let reads = method == Method::GET || method == Method::HEAD;
        if let Some(condition) = &self.if_match {
            if !condition.matches(current, EntityTag::is_same_strong) {
                return Evaluation::Failed;
            }
        } else if let (Some(since), Some(changed)) = (self.if_unmodified_since, current.last_modified)
            && seconds(changed) > seconds(since)
        {
            return Evaluation::Failed;
        }
        if let Some(condition) = &self.if_none_match {
            if condition.matches(current, EntityTag::is_same_weak) {
                return if reads { Evaluation::NotModified } else { Evaluation::Failed };
            }
        } else if let (true, Some(since), Some(changed)) =
            (reads, self.if_modified_since, current.last_modified)
            && seconds(changed) <= seconds(since)
        {
            return Evaluation::NotModified;
        }
        Evaluation::Proceed
    }
}

/// The condition under which a row may be written: the condition of `versioned` in `onceward-stores`, as its `If`.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowCondition<'a> {
    /// Anything: the request has no condition on an update.
    Unconditional,
    /// It has one of these tags: `If::Match(&tags)`. No tag can match if there is none.
    Match(Vec<&'a str>),
    /// There is such a row: `If::Exists`.
    Exists,
    /// There is no such row: `If::Absent`.
    Absent,
    /// Something that one statement cannot compare: a date, `If-None-Match` with tags, or two conditions. It must be
    /// [evaluated](Preconditions::evaluate) against a row that is locked; to write without it would lose an update.
    NotComparable,
}

impl Preconditions {
    /// Returns the condition under which an update may write a row.
    ///
    /// ```
    /// use onceward_http::precondition::{Preconditions, RowCondition};
    ///
    /// let request = http::Request::put("/orders/7").header("If-Match", "\"3\", W/\"4\"").body(())?;
    /// let preconditions = Preconditions::from_headers(request.headers())?;
    /// assert_eq!(preconditions.row_condition(), RowCondition::Match(vec!["3"]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn row_condition(&self) -> RowCondition<'_> {
        // A date counts only where there is no `If-Match`.
        match (&self.if_match, &self.if_none_match, self.if_unmodified_since) {
            (None, None, None) => RowCondition::Unconditional,
            (Some(condition), None, _) => {
                condition.strong_tags().map_or(RowCondition::Exists, RowCondition::Match)
            }
            (None, Some(TagCondition::Any), None) => RowCondition::Absent,
            _ => RowCondition::NotComparable,
        }
    }

    /// The answer to a request that is not to be carried out: 304 with the tag and the date of what the client has already, or
    /// 412 with both versions. `None` if it is to be carried out.
    ///
    /// ```
    /// use onceward_http::{EntityTag, Preconditions, Validators};
    ///
    /// let request = http::Request::get("/orders/7").header("If-None-Match", "\"3\"").body(())?;
    /// let current = Validators::existing().with_tag(EntityTag::strong("3")?);
    /// let answer = Preconditions::from_headers(request.headers())?.answer(request.method(), &current).unwrap();
    /// assert_eq!(answer.status(), 304);
    /// assert_eq!(answer.headers()["etag"], "\"3\"");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn answer(&self, method: &Method, current: &Validators) -> Option<Response<Bytes>> {
        match self.evaluate(method, current) {
            Evaluation::Proceed => None,
            Evaluation::Failed => {
                let refusal = self.refusal(current.tag.clone());
                let status = refusal.status();
                Some(refusal.into_response(status))
            }
            Evaluation::NotModified => {
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                if let Some(tag) = &current.tag {
                    response.headers_mut().insert(ETAG, tag.header_value());
                }
                let date = current.last_modified.filter(|at| (1..=LAST_SECOND).contains(&seconds(*at)));
                if let Some(date) = date.map(httpdate::fmt_http_date)
                    && let Ok(date) = HeaderValue::try_from(date)
                {
                    response.headers_mut().insert(LAST_MODIFIED, date);
                }
                Some(response)
            }
        }
    }
}

impl TagCondition {
    fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, MalformedPrecondition> {
        let mut tags = Vec::new();
        let (mut lines, mut stars) = (0, 0);
        for value in headers.get_all(name) {
            lines += 1;
            // A tag may have any bytes from 0x80 on. Those that are no UTF-8 are read one by one.
            let line = std::str::from_utf8(value.as_bytes()).map_or_else(
                |_| value.as_bytes().iter().map(|byte| char::from(*byte)).collect(),
                str::to_owned,
            );
            let read = if line.trim_matches([' ', '\t']) == "*" {
                stars += 1;
                Ok(())
            } else {
                read_tags(&line, &mut tags)
            };
            read.map_err(|why| MalformedPrecondition { field: name.clone(), why })?;
        }
        match (lines, stars, tags.is_empty()) {
            (0, ..) => Ok(None),
            (1, 1, _) => Ok(Some(Self::Any)),
            (_, 0, false) => Ok(Some(Self::Tags(tags))),
            (_, 0, true) => Err(MalformedPrecondition {
                field: name.clone(),
                why: MalformedTag("it names no entity tag".into()),
            }),
            _ => Err(MalformedPrecondition {
                field: name.clone(),
                why: MalformedTag("* together with other values".into()),
            }),
        }
    }

    fn matches(&self, current: &Validators, same: fn(&EntityTag, &EntityTag) -> bool) -> bool {
        match (self, &current.tag) {
            (Self::Any, _) => current.exists,
            (Self::Tags(tags), Some(current)) => tags.iter().any(|tag| same(tag, current)),
            (Self::Tags(_), None) => false,
        }
    }

    /// The tags that can match by the strong comparison, without their quotes; `None` for `*`.
    pub fn strong_tags(&self) -> Option<Vec<&str>> {
        match self {
            Self::Any => None,
            Self::Tags(tags) => {
                Some(tags.iter().filter(|tag| !tag.is_weak()).map(EntityTag::opaque).collect())
            }
        }
    }
}

/// A list of tags: commas between them, empty places ignored.
fn read_tags(line: &str, tags: &mut Vec<EntityTag>) -> Result<(), MalformedTag> {
    let blanks = [' ', '\t'];
    let mut rest = line.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let (tag, behind) = EntityTag::take(rest)?;
        tags.push(tag);
        if tags.len() > TAGS_MAX {
            return Err(MalformedTag(format!("more than {TAGS_MAX} entity tags")));
        }
        let behind = behind.trim_start_matches(blanks);
        if !behind.is_empty() && !behind.starts_with(',') {
            return Err(MalformedTag("two entity tags without a comma between them".into()));
        }
        rest = behind.trim_start_matches([' ', '\t', ',']);
    }
    Ok(())
}

/// A date in one of the three forms of HTTP. One that comes twice, or cannot be read, does not count.
fn read_date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| httpdate::parse_http_date(value.trim()).ok()).flatten()
}

/// HTTP dates end with the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// HTTP dates have whole seconds.
fn seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
#[path = "precondition_test.rs"]
mod tests;
