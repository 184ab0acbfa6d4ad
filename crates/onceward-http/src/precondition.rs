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

use http::header::{HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{Method, StatusCode};

pub use entity_tag::{EntityTag, MalformedTag};
pub use rule::PreconditionRule;

use crate::problem::Problem;

/// Entity tags in one field, at most.
const TAGS_MAX: usize = 256;

/// What a request wants to be so before it is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preconditions {
    /// `If-Match`: carried out if the current version is one of these.
    pub if_match: Option<TagCondition>,
    /// `If-None-Match`: carried out if it is none of these.
    pub if_none_match: Option<TagCondition>,
    /// `If-Unmodified-Since`: carried out if it has not changed since. Ignored beside `If-Match`.
    pub if_unmodified_since: Option<SystemTime>,
    /// `If-Modified-Since`: carried out if it has. Ignored beside `If-None-Match`, and for writes.
    pub if_modified_since: Option<SystemTime>,
}

/// The tags of one field.
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

/// What is to be done with a request.
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

    /// Whether there is one that protects an update: `If-Match`, `If-None-Match` or `If-Unmodified-Since`.
    pub fn protects_update(&self) -> bool {
        self.if_match.is_some() || self.if_none_match.is_some() || self.if_unmodified_since.is_some()
    }

    /// The refusal of a request whose precondition does not hold. It names both versions.
    pub fn refusal(&self, current: Option<EntityTag>) -> Problem {
        let condition = self.if_match.as_ref().or(self.if_none_match.as_ref());
        let expected = match condition {
            Some(TagCondition::Tags(tags)) => tags.clone(),
            _ => Vec::new(),
        };
        Problem::PreconditionFailed { expected, current }
    }

    /// What is to be done, in the order of RFC 9110, section 13.2.2.
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

impl TagCondition {
    fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, MalformedPrecondition> {
        let mut tags = Vec::new();
        let (mut lines, mut stars) = (0, 0);
        for value in headers.get_all(name) {
            lines += 1;
            let read = match value.to_str().or_else(|_| std::str::from_utf8(value.as_bytes())) {
                Ok(line) if line.trim_matches([' ', '\t']) == "*" => {
                    stars += 1;
                    Ok(())
                }
                Ok(line) => read_tags(line, &mut tags),
                Err(_) => Err(MalformedTag("it is not text".into())),
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
                why: MalformedTag("* beside other values".into()),
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

/// HTTP dates have whole seconds.
fn seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
#[path = "precondition_test.rs"]
mod tests;
