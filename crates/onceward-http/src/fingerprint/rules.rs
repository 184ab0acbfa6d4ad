//! The rules of a route that say which parts of a request count for its fingerprint. By default the method, the host,
//! the path, the whole query and the whole body do, and no header field but those that say how to read the body; of a
//! caller that is not known, also every field that may name one.

use http::HeaderName;

use super::pointer::{Pointer, Selection};

/// The parts of a request that its fingerprint covers.
///
/// ```
/// use onceward_http::fingerprint::{Pick, Pointer, Rules};
///
/// let rules = Rules::default()
///     .with_members(Pick::Except(vec![Pointer::parse("/sent_at")?]))
///     .with_parameters(Pick::Except(vec!["trace".to_owned()]))
///     .with_headers([http::HeaderName::from_static("x-api-version")]);
/// # Ok::<(), onceward::Error>(())
/// ```
///
/// The rules themselves are not digested: a request that a change of rules does not touch keeps its
/// fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    members: Pick<Pointer>,
    /// The same as `members`, made ready for walking down a document.
    selection: Selection,
    parameters: Pick<String>,
    headers: Vec<HeaderName>,
    ignored_headers: Vec<HeaderName>,
    host: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            members: Pick::default(),
            selection: Selection::default(),
            parameters: Pick::default(),
            headers: Vec::new(),
            ignored_headers: Vec::new(),
            host: true,
        }
    }
}

/// Which of several things count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pick<T> {
    /// All of them.
    #[default]
    All,
    /// Only these. One that a request does not have is no error; it counts as absent.
    Only(Vec<T>),
    /// All but these.
    Except(Vec<T>),
}

impl Rules {
    /// Says which members of a JSON body count.
    ///
    /// With [`Pick::Only`], a document comes down to the values pointed to and to the objects and arrays
    /// on the way to them. With [`Pick::Except`], what is pointed to is taken out as if it had not been
    /// sent. A body that counts by its bytes (not JSON, repeated names among what counts, …) has no members:
    /// it counts as a whole.
    pub fn with_members(mut self, members: Pick<Pointer>) -> Self {
        self.selection = Selection::new(&members);
        self.members = members;
        self
    }

    /// Says which parameters of the query count, by their decoded names.
    pub fn with_parameters(mut self, parameters: Pick<String>) -> Self {
        self.parameters = parameters;
        self
    }

    /// Says which header fields count besides: all their lines, in order, by their bytes.
    pub fn with_headers(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.headers = headers.into_iter().collect();
        // The order in a configuration file says nothing about a request.
        self.headers.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        self.headers.dedup();
        self
    }

    /// Says which header fields never count for a caller that is not known, besides
    /// [`FIELDS_THAT_NAME_NO_CALLER`](super::FIELDS_THAT_NAME_NO_CALLER): they name no caller and differ between two tries.
    pub fn with_ignored_headers(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.ignored_headers = headers.into_iter().collect();
        self
    }

    /// Says whether the host counts. It does by default; it must not where a balancer writes it differently from try
    /// to try.
    pub fn with_host(mut self, counts: bool) -> Self {
        self.host = counts;
        self
    }

    /// Which members of a JSON body count.
    pub fn members(&self) -> &Pick<Pointer> {
        &self.members
    }

    /// Which parameters of the query count.
    pub fn parameters(&self) -> &Pick<String> {
        &self.parameters
    }

    /// Which header fields count besides, sorted by name.
    pub fn headers(&self) -> &[HeaderName] {
        &self.headers
    }

    /// Which header fields never count for a caller that is not known.
    pub fn ignored_headers(&self) -> &[HeaderName] {
        &self.ignored_headers
    }

    /// Returns whether the host counts.
    pub fn host(&self) -> bool {
        self.host
    }

    /// Whether a field counts for a caller that is not known.
    pub(crate) fn may_name_somebody(&self, name: &HeaderName) -> bool {
        !super::names_nobody(name) && !self.ignored_headers.contains(name)
    }

    pub(super) fn selection(&self) -> &Selection {
        &self.selection
    }
}
