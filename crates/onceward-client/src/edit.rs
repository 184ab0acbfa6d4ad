//! Edits of a resource that others edit too: the client sends the tag of the version that was seen, and hands a
//! conflict to a merge hook, a bounded number of times.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, IF_MATCH};
use http::{HeaderValue, StatusCode};
use onceward_http::EntityTag;

use super::client::Client;
use super::error::{Error, Result};
use super::request::Request;
use super::server_reply::Reply;

/// How often a conflict is merged, unless it is set.
const MERGES_MAX: u32 = 3;

/// An edit of the resource behind one URL: see [`Client::edit`].
///
/// ```no_run
/// # async fn example(client: onceward_client::Client) -> Result<(), onceward_client::Error> {
/// use onceward_client::Edited;
///
/// let url = "https://api.example/documents/7";
/// let seen = client.get(url).send().await?;
/// let mine = format!("{}\nOne more line.", seen.text());
/// let edited = client
///     .edit(url)
///     .save(&seen, mine, |conflict| Some(format!("{}\nOne more line.", conflict.theirs.text()).into()))
///     .await?;
/// match edited {
///     Edited::Answered(answer) => println!("{}", answer.status()),
///     Edited::AlreadyThere(_) => {} // the current version is exactly mine
///     Edited::Conflict(theirs) => println!("not saved; the current version is {}", theirs.text()),
/// }
/// # Ok(()) }
/// ```
#[must_use = "an edit does nothing until it is saved"]
#[derive(Debug)]
pub struct Edit {
    client: Client,
    url: String,
    merges_max: u32,
}

/// Both versions of a conflict, and the one that both come from.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EditConflict<'a> {
    /// The version that was seen before the edit.
    pub base: &'a Reply,
    /// The body that was to be saved.
    pub mine: &'a Bytes,
    /// The version that is there now.
    pub theirs: &'a Reply,
}

/// The result of an edit.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug)]
#[must_use]
pub enum Edited {
    /// The server has answered the last save: it is saved if the status says so.
    Answered(Reply),
    /// The save was refused, and the current version is byte for byte what was to be saved. Mostly the answer of an
    /// earlier try was lost.
    AlreadyThere(Reply),
    /// Not saved: the hook declined, the bound was reached, or the resource cannot be read any more. This is the answer
    /// of the last read.
    Conflict(Reply),
}

impl Client {
    /// An edit of the resource at a URL: saved with `PUT` and `If-Match`, so that no version is overwritten unseen.
    pub fn edit(&self, url: impl Into<String>) -> Edit {
        Edit { client: self.clone(), url: url.into(), merges_max: MERGES_MAX }
    }
}

impl Edit {
    /// Sets how often a conflict is handed to the merge hook, 3 times by default. With zero, the first conflict is the
    /// result.
    pub fn with_merges_max(mut self, merges: u32) -> Self {
        self.merges_max = merges;
        self
    }

    /// Saves `mine`, if the resource is still in the version that was `seen`. After a 412 it reads the current version and
    /// calls `merge` with both; what that returns is saved on top of the current version. `None` declines.
    ///
    /// Each save is an intent of its own, with a key of its own: a retry after a lost answer gets its recorded answer, where
    /// the server keeps receipts of `PUT`. **Dropping** the future stops it; a save that was sent may still take effect.
    pub async fn save(
        self,
        seen: &Reply,
        mine: impl Into<Bytes>,
        mut merge: impl FnMut(EditConflict<'_>) -> Option<Bytes>,
    ) -> Result<Edited> {
        let Self { client, url, merges_max } = self;
        let (mut base, mut mine) = (seen.clone(), mine.into());
        let mut rounds = 0;
        loop {
            let tag = base.entity_tag().ok_or_else(no_tag)?;
            // Byte for byte as it came: the tag of a server need not be text.
            let value = base.headers().get(ETAG).cloned().unwrap_or_else(|| tag.header_value());
            let mut put = client.put(&url).if_match_as(&tag, value).body(mine.clone());
            if let Some(kind) = base.headers().get(CONTENT_TYPE) {
                put = put.header(CONTENT_TYPE, kind.clone());
            }
            let saved = put.send().await?;
            if saved.status() != StatusCode::PRECONDITION_FAILED {
                return Ok(Edited::Answered(saved));
            }
            let theirs = client.get(&url).send().await?;
            if !theirs.status().is_success() {
                return Ok(Edited::Conflict(theirs));
            }
            if *theirs.body() == mine {
                return Ok(Edited::AlreadyThere(theirs));
            }
            if rounds == merges_max {
                return Ok(Edited::Conflict(theirs));
            }
            rounds += 1;
            match merge(EditConflict { base: &base, mine: &mine, theirs: &theirs }) {
                Some(merged) => (base, mine) = (theirs, merged),
                None => return Ok(Edited::Conflict(theirs)),
            }
        }
    }
}

impl Reply {
    /// The tag of the version that this answer is about; `None` without an `ETag`, or with one that cannot be read. Bytes
    /// that are no UTF-8 are read one by one, as Latin-1; [`Edit`] sends such a tag as it came.
    pub fn entity_tag(&self) -> Option<EntityTag> {
        let value = self.headers().get(ETAG)?.as_bytes();
        match std::str::from_utf8(value) {
            Ok(text) => text.parse().ok(),
            Err(_) => value.iter().map(|byte| char::from(*byte)).collect::<String>().parse().ok(),
        }
    }
}

impl Request {
    /// Makes the request conditional on this version of the resource (`If-Match`); otherwise the answer is 412. A weak
    /// tag is an error: it never matches.
    pub fn if_match(self, tag: &EntityTag) -> Self {
        let value = tag.header_value();
        self.if_match_as(tag, value)
    }

    /// The same, with the bytes in which the tag came.
    fn if_match_as(self, tag: &EntityTag, value: HeaderValue) -> Self {
        if tag.is_weak() {
            return self.fail(Error::invalid(format!("{tag} is a weak tag, which If-Match never matches")));
        }
        self.header(IF_MATCH, value)
    }
}

fn no_tag() -> Error {
    Error::invalid(
        "the version that was seen has no ETag, so that it cannot be told whether another client has changed it; have \
         the server send one",
    )
}
