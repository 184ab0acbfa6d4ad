//! Calls: to which server, logged in, and what was learned of the time.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode};
use onceward::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::address::Address;
use super::api::{Login, Refusal};
use super::errors::{CallEffect, refused, strange};
use super::http::{Call, Http, NoAnswer};
use crate::kit::dated_clock::DatedClock;

pub(super) struct Client {
    pub(super) http: Http,
    pub(super) clock: DatedClock,
    login: Option<(String, String)>,
    token: Mutex<Option<Arc<str>>>,
}

/// An answer, or why the server refused.
pub(super) enum Answered<T> {
    Yes(T),
    Refused(Refusal),
}

impl Client {
    pub(super) fn new(address: &Address, call_timeout: std::time::Duration) -> Result<Self> {
        Ok(Self {
            http: Http::new(address, call_timeout)?,
            clock: DatedClock::default(),
            login: address.login.clone(),
            token: Mutex::default(),
        })
    }

    /// Calls, and expects to be served.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        path: &'static str,
        body: &Value,
        effect: CallEffect,
    ) -> Result<T> {
        match self.ask(path, body, effect).await? {
            Answered::Yes(answer) => Ok(answer),
            Answered::Refused(refusal) => Err(refused(&self.http.name(), effect, &refusal)),
        }
    }

    /// Calls, logged in again if the login is over.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &'static str,
        body: &Value,
        effect: CallEffect,
    ) -> Result<Answered<T>> {
        let body = Bytes::from(body.to_string());
        for last_try in [false, true] {
            let call = Call { method: Method::POST, path, body: body.clone(), token: self.token().await? };
            let answer = self.send(&call, effect).await?;
            if answer.status() == StatusCode::OK {
                return serde_json::from_slice(answer.body())
                    .map(Answered::Yes)
                    .map_err(|_| strange(&self.http.name(), effect));
            }
            let Ok(refusal) = serde_json::from_slice::<Refusal>(answer.body()) else {
                return Err(strange(&self.http.name(), effect));
            };
            if refusal.is_login_over() && self.login.is_some() && !last_try {
                self.log_out();
                continue;
            }
            if answer.status().is_server_error() {
                self.http.pass_on();
            }
            return Ok(Answered::Refused(refusal));
        }
        unreachable!("the last try returns")
    }

    /// Reads a text, where there is one.
    pub(super) async fn text(&self, path: &'static str) -> Option<String> {
        let call = Call { method: Method::GET, path, body: Bytes::new(), token: None };
        let answer = self.send(&call, CallEffect::Reads).await.ok()?;
        (answer.status() == StatusCode::OK).then(|| String::from_utf8_lossy(answer.body()).into_owned())
    }

    async fn send(&self, call: &Call, effect: CallEffect) -> Result<Response<Bytes>> {
        let called_us = DatedClock::elapsed_us();
        let answer = self.http.call(call).await.map_err(|none| unanswered(none, effect))?;
        self.clock.learn(answer.headers().get(http::header::DATE).map(HeaderValue::as_bytes), called_us);
        Ok(answer)
    }

    /// The token of the login, if there is one.
    pub(super) async fn token(&self) -> Result<Option<Arc<str>>> {
        let Some((name, password)) = &self.login else { return Ok(None) };
        if let Some(token) = &*self.lock() {
            return Ok(Some(Arc::clone(token)));
        }
        let body = Bytes::from(json!({ "name": name, "password": password }).to_string());
        let call = Call { method: Method::POST, path: "/v3/auth/authenticate", body, token: None };
        let answer = self.send(&call, CallEffect::Reads).await?;
        if let Ok(Login { token }) = serde_json::from_slice(answer.body()) {
            let token: Arc<str> = token.into();
            *self.lock() = Some(Arc::clone(&token));
            return Ok(Some(token));
        }
        match serde_json::from_slice::<Refusal>(answer.body()) {
            // A server without users needs no login.
            Ok(refusal) if refusal.text().contains("authentication is not enabled") => Ok(None),
            Ok(refusal) => Err(refused(&self.http.name(), CallEffect::Reads, &refusal)),
            Err(_) => Err(strange(&self.http.name(), CallEffect::Reads)),
        }
    }

    pub(super) fn log_out(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<str>>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unanswered(none: NoAnswer, effect: CallEffect) -> Error {
    let NoAnswer { server, unsent, cause } = none;
    if unsent {
        return Error::new(ErrorKind::Unavailable, format!("cannot reach {server}")).caused_by(cause);
    }
    let error =
        Error::new(ErrorKind::Unavailable, format!("the connection to {server} failed")).caused_by(cause);
    if effect == CallEffect::Writes { error.maybe_applied() } else { error }
}
