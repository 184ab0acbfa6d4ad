//! A cache of parsed URLs: most requests of a client repeat a URL, and parsing one is a tenth of the work of a
//! whole request.

use std::hash::{BuildHasher, RandomState};
use std::sync::{PoisonError, RwLock};

use reqwest::Url;

use super::error::{Error, Result};

/// Number of cached URLs. The slot is chosen by hash; a new URL replaces the one in its slot.
const SLOTS: usize = 16;
/// A longer URL is not cached.
const TEXT_BYTES_MAX: usize = 2_048;

/// The URLs that a client has parsed lately.
#[derive(Debug, Default)]
pub(crate) struct UrlCache {
    slots: [RwLock<Option<ParsedUrl>>; SLOTS],
    hasher: RandomState,
}

#[derive(Debug)]
struct ParsedUrl {
    text: Box<str>,
    url: Url,
}

impl UrlCache {
    /// Parses a URL that requests can be sent to.
    pub(crate) fn read(&self, text: &str) -> Result<Url> {
        let index = usize::try_from(self.hasher.hash_one(text) % SLOTS as u64).expect("a small remainder");
        let slot = &self.slots[index];
        if let Some(parsed) = &*slot.read().unwrap_or_else(PoisonError::into_inner)
            && *parsed.text == *text
        {
            return Ok(parsed.url.clone());
        }
        let url = parse(text)?;
        if text.len() <= TEXT_BYTES_MAX {
            let parsed = ParsedUrl { text: text.into(), url: url.clone() };
            *slot.write().unwrap_or_else(PoisonError::into_inner) = Some(parsed);
        }
        Ok(url)
    }
}

fn parse(text: &str) -> Result<Url> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(url),
        Ok(url) => Err(Error::invalid(format!("`{}:` is neither http nor https", url.scheme()))),
        Err(error) => Err(Error::invalid(format!("`{text}` is no URL: {error}"))),
    }
}

#[cfg(test)]
#[path = "url_cache_test.rs"]
mod tests;
