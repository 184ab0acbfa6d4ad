//! The retries of the client as a tower layer, around any service that sends HTTP requests.
//!
//! It keeps no journal and does not notice a body that breaks off: an answer is returned as soon as its head has
//! arrived. The [`Client`](super::Client) does both.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use tower_layer::Layer;
use tower_service::Service;

use super::TRY_NUMBER;
use super::counts::Counts;
use super::error::Error;
use super::key_status::KeyStatus;
use super::reply_body::ReplyBody;
use super::retry_after::{expires_in, retry_after};
use super::retry_config::RetryConfig;
use super::retry_decision::{Guard, Sent, TryResult};
use super::retry_loop::{CallEnd, CallResult, RetryContext, Try, drive};
use super::retry_state::RetryState;
use onceward_http::BoxError;
use onceward_http::headers::IDEMPOTENCY_KEY;

/// Retries requests that are safe to retry. Clones share budgets and breakers, as do all services made by one.
///
/// The service it makes reads each request body into memory first, so that it can be sent again. A request with an unsafe method and no `Idempotency-Key` gets a random one.
/// Each answer carries a [`CallReport`](super::CallReport) among its extensions.
#[derive(Clone, Debug)]
pub struct RetryLayer {
    shared: Arc<RetryContext>,
    request_bytes_max: usize,
    is_unsent: fn(&(dyn std::error::Error + 'static)) -> bool,
}

impl RetryLayer {
    /// A builder with the default settings.
    pub fn builder() -> RetryLayerBuilder {
        RetryLayerBuilder {
            config: RetryConfig::default(),
            request_bytes_max: 1 << 20,
            is_unsent: was_refused,
        }
    }

    /// Returns the counts of this layer's services.
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }
}

/// Builds a [`RetryLayer`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct RetryLayerBuilder {
    config: RetryConfig,
    request_bytes_max: usize,
    is_unsent: fn(&(dyn std::error::Error + 'static)) -> bool,
}

impl RetryLayerBuilder {
    /// Sets the limits of all calls: number of tries, timeouts, backoff, budget and breaker.
    pub fn with_retry_config(mut self, config: RetryConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the largest request body, in bytes: 1 MiB unless set. A larger one is refused, and nothing of it is sent.
    pub fn with_request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// Says which errors of the inner service mean that nothing was sent. Unless set, these are the errors
    /// whose innermost source is a refused connection.
    pub fn with_is_unsent(mut self, is_unsent: fn(&(dyn std::error::Error + 'static)) -> bool) -> Self {
        self.is_unsent = is_unsent;
        self
    }

    /// Checks the limits and builds the layer.
    pub fn build(self) -> super::Result<RetryLayer> {
        let Self { config, request_bytes_max, is_unsent } = self;
        config.check()?;
        Ok(RetryLayer { shared: Arc::new(RetryContext::new(config)), request_bytes_max, is_unsent })
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = RetryService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryService { inner, layer: self.clone() }
    }
}

/// The service that [`RetryLayer`] makes. Its error is that of the inner service if the call ended with it, and an
/// [`Error`] if the call was stopped.
#[derive(Clone, Debug)]
pub struct RetryService<S> {
    inner: S,
    layer: RetryLayer,
}

impl<S, I, B> Service<Request<I>> for RetryService<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    I: Body + Send + 'static,
    I::Data: Send,
    I::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ReplyBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<I>) -> Self::Future {
        // The service that was polled ready makes the first try.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move { layer.send(ready, request).await })
    }
}

impl RetryLayer {
    async fn send<S, I, B>(
        &self,
        mut service: S,
        request: Request<I>,
    ) -> Result<Response<ReplyBody<B>>, BoxError>
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone,
        S::Error: Into<BoxError>,
        I: Body,
        I::Error: Into<BoxError>,
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        let body = Limited::new(body, self.request_bytes_max).collect().await.map_err(|error| {
            let error = if error.is::<LengthLimitError>() {
                let max = self.request_bytes_max;
                Error::invalid(format!("the body is over {max} bytes, more than is kept for another try"))
            } else {
                Error::invalid("the body cannot be read").caused_by(error)
            };
            BoxError::from(error)
        })?;
        let body = body.to_bytes();
        if !head.headers.contains_key(IDEMPOTENCY_KEY) && !head.method.is_safe() {
            head.headers.insert(IDEMPOTENCY_KEY, self.shared.new_key().field_value());
        }
        let guard = Guard::of(&head.method, head.headers.contains_key(IDEMPOTENCY_KEY));
        let shared = &*self.shared;
        let host = shared.hosts.host(head.uri.authority().map_or("", |authority| authority.as_str()));
        let state = RetryState::new(shared.config, guard, shared.now());
        let trying = |number, at_most| {
            let clone = service.clone();
            let ready = std::mem::replace(&mut service, clone);
            let mut again = Request::from_parts(head.clone(), Full::new(body.clone()));
            again.headers_mut().insert(TRY_NUMBER, HeaderValue::from(number));
            async move {
                match tokio::time::timeout(at_most, call(ready, again)).await {
                    Ok(Ok((tried, response))) => {
                        let honoured_for = expires_in(response.headers(), SystemTime::now());
                        Try { tried, no_answer: None, honoured_for, value: Ok(response) }
                    }
                    Ok(Err(error)) => self.failed(error),
                    Err(_) => self.failed(format!("none within {at_most:?}").into()),
                }
            }
        };
        finish(drive(shared, &host, state, trying).await)
    }

    fn failed<T>(&self, error: BoxError) -> Try<Result<T, BoxError>> {
        let was_sent = if (self.is_unsent)(&*error) { Sent::No } else { Sent::Maybe };
        let no_answer = Some(error.to_string());
        Try { tried: TryResult::Failed(was_sent), no_answer, honoured_for: None, value: Err(error) }
    }
}

/// Makes one try: the answer, and what it means.
async fn call<S, B>(
    mut service: S,
    request: Request<Full<Bytes>>,
) -> Result<(TryResult, Response<ReplyBody<B>>), BoxError>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    let (head, body) = service.call(request).await.map_err(Into::into)?.into_parts();
    let mut body = ReplyBody::new(body);
    let (mut key_status, mut hint) = (KeyStatus::NotStated, None);
    if !head.status.is_success() {
        hint = retry_after(&head.headers, SystemTime::now());
        let peeked = if KeyStatus::needs_body(&head.headers) { body.peek().await? } else { &[] };
        key_status = KeyStatus::read(head.status, &head.headers, peeked);
    }
    let tried = TryResult::Answered { status: head.status, retry_after: hint, key_status };
    Ok((tried, Response::from_parts(head, body)))
}

/// The result for the caller: an answer, if there is one.
fn finish<B>(result: CallResult<Result<Response<B>, BoxError>>) -> Result<Response<B>, BoxError> {
    let CallResult { ended, mut report, was_sent } = result;
    let effect = match was_sent {
        Sent::No => onceward::Effect::None,
        Sent::Maybe => onceward::Effect::Maybe,
    };
    let mut response = match ended {
        CallEnd::Finished(given) => given?,
        CallEnd::Stopped(_, Some(Ok(response))) => response,
        CallEnd::Stopped(why, Some(Err(last))) => {
            return Err(Error::stopped(why, effect, None).report_is(report).caused_by(last).into());
        }
        CallEnd::Stopped(why, None) => {
            return Err(Error::stopped(why, effect, None).report_is(report).into());
        }
    };
    report.read_fields(response.headers());
    response.extensions_mut().insert(report);
    Ok(response)
}

fn was_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let io = innermost.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
#[path = "layer_test.rs"]
mod tests;
