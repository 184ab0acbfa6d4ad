//! How the events of one sender are received: verified first, and then passed on at once or stored first.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, StatusCode};
use onceward::{Error, ErrorKind, Result};

use super::deliveries::Arrivals;
use super::{Scheme, Verifier};
use crate::fingerprint::Pointer;
use crate::key::KeyShape;
use crate::key_source::KeyFrom;

/// How a route receives webhooks. The signature is verified over the raw body before anything is looked up; the sender's
/// event id is the key.
///
/// ```
/// use onceward_http::Route;
/// use onceward_http::webhook::{Receiver, Scheme, Verifier};
///
/// let verifier = Verifier::new(Scheme::GitHub, ["It's a Secret to Everybody"])?;
/// let route = Route::preset("webhook")?.to_builder().with_webhook(Receiver::new(verifier)).build()?;
/// assert_eq!(route.key_from().to_string(), "event:github");
/// # Ok::<(), onceward::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Receiver {
    pub(crate) verifier: Arc<Verifier>,
    pub(crate) store_first: Option<Arc<StoreFirst>>,
}

impl Receiver {
    /// Verifies events, and passes each on to the service while its sender waits.
    pub fn new(verifier: Verifier) -> Self {
        Self { verifier: Arc::new(verifier), store_first: None }
    }

    /// Stores events and acknowledges them at once; [`Deliveries`](super::Deliveries) hand them to the service.
    pub fn with_store_first(mut self, store_first: StoreFirst) -> Self {
        self.store_first = Some(Arc::new(store_first));
        self
    }

    /// How the sender signs.
    pub fn scheme(&self) -> Scheme {
        self.verifier.scheme()
    }

    /// How events are stored, if they are stored first.
    pub fn store_first(&self) -> Option<&StoreFirst> {
        self.store_first.as_deref()
    }
}

/// How events are stored before they are delivered.
#[derive(Clone, Debug)]
pub struct StoreFirst {
    pub(crate) arrivals: Arrivals,
    pub(crate) status: StatusCode,
    pub(crate) order_by: Option<OrderBy>,
}

impl StoreFirst {
    /// Events are acknowledged with 202, and delivered in any order by the [`Deliveries`](super::Deliveries) of these arrivals.
    pub fn new(arrivals: Arrivals) -> Self {
        Self { arrivals, status: StatusCode::ACCEPTED, order_by: None }
    }

    /// Sets where stored events are announced.
    pub fn with_arrivals(mut self, arrivals: Arrivals) -> Self {
        self.arrivals = arrivals;
        self
    }

    /// Sets the status of the acknowledgement. It must be 2xx; the builder of the route checks it.
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Sets which events are about the same object. These are delivered one at a time, in the order in which they
    /// arrived.
    pub fn with_order_by(mut self, order_by: OrderBy) -> Self {
        self.order_by = Some(order_by);
        self
    }

    /// The status of the acknowledgement.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Which events are about the same object.
    pub fn order_by(&self) -> Option<&OrderBy> {
        self.order_by.as_ref()
    }
}

/// Which object an event is about: a member of its JSON body, or a header field. As text: `body:POINTER` or
/// `header:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy(KeyFrom);

impl OrderBy {
    /// The object of an event; `None` if it names none, so that it is delivered by itself.
    pub fn object(&self, headers: &HeaderMap, body: &[u8]) -> Option<String> {
        match &self.0 {
            KeyFrom::Header(name) => of_field(name, headers),
            KeyFrom::Body(pointer) => of_member(pointer, body),
            KeyFrom::Event(_) => None,
        }
    }
}

fn of_field(name: &HeaderName, headers: &HeaderMap) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn of_member(pointer: &Pointer, body: &[u8]) -> Option<String> {
    KeyFrom::read_body(pointer, &KeyShape::default(), body).ok().flatten()
}

impl std::fmt::Display for OrderBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for OrderBy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<KeyFrom>() {
            Ok(from) => Ok(Self(from)),
            Err(_) => {
                let detail = format!("`{text}` names no object; write `body:/pointer` or `header:NAME`");
                Err(Error::new(ErrorKind::Invalid, detail))
            }
        }
    }
}
