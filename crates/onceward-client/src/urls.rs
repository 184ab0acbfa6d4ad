//! URLs as they were read: most requests of a client go where the ones before went, and reading a URL
//! is a tenth of the work of a whole request.

use std::hash::{BuildHasher, RandomState};
use std::sync::{PoisonError, RwLock};

use reqwest::Url;

use super::error::{Error, Result};

/// This many are remembered, each in a place of its own; a newcomer takes the place of another.
const PLACES: usize = 16;
/// A longer one is read each time: only small ones are worth their memory.
const TEXT_BYTES_MAX: usize = 2_048;

/// The URLs that a client has read lately.
#[derive(Debug, Default)]
pub(crate) struct Urls {
    places: [RwLock<Option<Known>>; PLACES],
    hasher: RandomState,
}

#[derive(Debug)]
struct Known {
    text: Box<str>,
    url: Url,
}

impl Urls {
    /// Reads a URL that requests can be sent to.
    pub(crate) fn read(&self, text: &str) -> Result<Url> {
        let hash = usize::try_from(self.hasher.hash_one(text) % PLACES as u64).expect("a small remainder");
        let place = &self.places[hash];
        if let Some(known) = &*place.read().unwrap_or_else(PoisonError::into_inner)
            && *known.text == *text
        {
            return Ok(known.url.clone());
        }
        let url = parse(text)?;
        if text.len() <= TEXT_BYTES_MAX {
            let known = Known { text: text.into(), url: url.clone() };
            *place.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
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
#[path = "urls_test.rs"]
mod tests;
