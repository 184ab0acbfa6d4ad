//! Sets the options of a check. They are checked together when it runs, before anything is sent.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use super::{Check, Effects, KeyNotation};
use crate::endpoint::pattern::Pattern;
use crate::endpoint::volley::HttpVersion;
use crate::endpoint::webhook::Webhook;

impl Check {
    /// Sets the method, `POST` by default.
    pub fn with_method(mut self, method: impl Into<String>) -> Self {
        self.method = method.into();
        self
    }

    /// Sets the body that has the effect. It need not be text.
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the fields of every request.
    pub fn with_headers(mut self, fields: impl IntoIterator<Item = (String, String)>) -> Self {
        self.headers = fields.into_iter().collect();
        self
    }

    /// Sets the field that carries the key.
    pub fn with_key_header(mut self, key_header: impl Into<String>) -> Self {
        self.key_header = key_header.into();
        self
    }

    /// Sets how the key is written there.
    pub fn with_key_notation(mut self, key_notation: KeyNotation) -> Self {
        self.key_notation = key_notation;
        self
    }

    /// Sets where in the JSON of the body the key belongs, instead of in a field: a JSON pointer.
    pub fn with_key_pointer(mut self, key_pointer: impl Into<Option<String>>) -> Self {
        self.key_pointer = key_pointer.into();
        self
    }

    /// Sets the parameter of the query that carries the key, instead of a field.
    pub fn with_key_parameter(mut self, key_parameter: impl Into<Option<String>>) -> Self {
        self.key_parameter = key_parameter.into();
        self
    }

    /// Sets fields that are new in every sending: `{uuid}`, `{unix}`, `{unix_ms}` and `{count}` are filled in.
    pub fn with_fresh_fields(mut self, fields: impl IntoIterator<Item = (String, String)>) -> Self {
        self.fresh_fields = fields.into_iter().collect();
        self
    }

    /// Sets which HTTP is spoken.
    pub fn with_version(mut self, version: HttpVersion) -> Self {
        self.version = version;
        self
    }

    /// Sets the file (PEM) of authorities whose certificates are believed besides those that the system trusts.
    pub fn with_authorities(mut self, authorities: impl Into<Option<PathBuf>>) -> Self {
        self.authorities = authorities.into();
        self
    }

    /// Sets the number of requests of a volley, 2 to 10,000.
    pub fn with_clients(mut self, clients: usize) -> Self {
        self.clients = clients;
        self
    }

    /// Sets the number of volleys of a scenario, 1 to 10,000.
    pub fn with_rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }

    /// Sets how often the server is killed, 1 to 10,000.
    pub fn with_kills(mut self, kills: usize) -> Self {
        self.kills = kills;
        self
    }

    /// Sets where the number of effects is read.
    pub fn with_effects(mut self, effects: Effects) -> Self {
        self.effects = effects;
        self
    }

    /// Sets another valid body; `None` to make one from the body where that is JSON.
    pub fn with_alt_body(mut self, alt_body: impl Into<Option<Bytes>>) -> Self {
        self.alt_body = alt_body.into();
        self
    }

    /// Sets pairs of fields that stand for two tenants: credentials, cookies, hosts.
    pub fn with_tenants(mut self, pairs: impl IntoIterator<Item = [(String, String); 2]>) -> Self {
        self.tenants = pairs.into_iter().collect();
        self
    }

    /// Sets the credential of the first tenant after it was refreshed.
    pub fn with_refreshed(mut self, field: impl Into<Option<(String, String)>>) -> Self {
        self.refreshed = field.into();
        self
    }

    /// Sets another endpoint of the same service that takes the same request.
    pub fn with_other_url(mut self, other_url: impl Into<Option<String>>) -> Self {
        self.other_url = other_url.into();
        self
    }

    /// Sets more instances of the same service.
    pub fn with_also_urls(mut self, also_urls: impl IntoIterator<Item: Into<String>>) -> Self {
        self.also_urls = also_urls.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the command that starts the service, which is then killed and started again.
    pub fn with_start_command(mut self, start_command: impl Into<Option<String>>) -> Self {
        self.start_command = start_command.into();
        self
    }

    /// Sets where what is started listens, if that is not the endpoint.
    pub fn with_start_url(mut self, start_url: impl Into<Option<String>>) -> Self {
        self.start_url = start_url.into();
        self
    }

    /// Sets the command that is run after each start. It prints header fields for all requests after that: a login.
    pub fn with_ready_command(mut self, ready_command: impl Into<Option<String>>) -> Self {
        self.ready_command = ready_command.into();
        self
    }

    /// Sets a resource with an `ETag` that is changed with `PUT` and `If-Match`.
    pub fn with_versioned_url(mut self, versioned_url: impl Into<Option<String>>) -> Self {
        self.versioned_url = versioned_url.into();
        self
    }

    /// Sets the body of that update.
    pub fn with_versioned_body(mut self, versioned_body: impl Into<Option<Bytes>>) -> Self {
        self.versioned_body = versioned_body.into();
        self
    }

    /// Sets an endpoint for signed events.
    pub fn with_webhook(mut self, webhook: impl Into<Option<Webhook>>) -> Self {
        self.webhook = webhook.into();
        self
    }

    /// Sets fields that make the endpoint fail before its effect, each in another way.
    pub fn with_fail_headers(mut self, fields: impl IntoIterator<Item = (String, String)>) -> Self {
        self.fail_headers = fields.into_iter().collect();
        self
    }

    /// Sets fields that make the endpoint fail after its effect. `{status}` in a value stands for each status that is tried.
    pub fn with_fail_after_effect_headers(
        mut self,
        fields: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        self.fail_after_effect_headers = fields.into_iter().collect();
        self
    }

    /// Sets the field that makes the request take longer than the lease.
    pub fn with_slow_header(mut self, field: impl Into<Option<(String, String)>>) -> Self {
        self.slow_header = field.into();
        self
    }

    /// Sets how long a key may stay unavailable after a crash, or while a request is still running.
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long an answer is promised to be kept.
    pub fn with_retention(mut self, retention: impl Into<Option<Duration>>) -> Self {
        self.retention = retention.into();
        self
    }

    /// Sets whether a 5xx is a final answer that is replayed, as with Stripe.
    pub fn with_failures_are_final(mut self, failures_are_final: bool) -> Self {
        self.failures_are_final = failures_are_final;
        self
    }

    /// Sets the fields of an answer that may change between a run and its replay.
    pub fn with_volatile_fields(mut self, volatile_fields: impl IntoIterator<Item: Into<String>>) -> Self {
        self.volatile_fields = volatile_fields.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the answers that say "not now", besides 409, 423, 425, 429 and 503.
    pub fn with_not_now(mut self, patterns: impl IntoIterator<Item = Pattern>) -> Self {
        self.not_now = patterns.into_iter().collect();
        self
    }

    /// Sets the answers that refuse a request, besides 4xx.
    pub fn with_refused(mut self, patterns: impl IntoIterator<Item = Pattern>) -> Self {
        self.refused = patterns.into_iter().collect();
        self
    }

    /// Sets the answers that are failures, besides 5xx.
    pub fn with_failed(mut self, patterns: impl IntoIterator<Item = Pattern>) -> Self {
        self.failed = patterns.into_iter().collect();
        self
    }

    /// Sets the answers that say that the outcome is unknown, besides the 409 of RFC 9457 with `"retryable": false`.
    pub fn with_held(mut self, patterns: impl IntoIterator<Item = Pattern>) -> Self {
        self.held = patterns.into_iter().collect();
        self
    }

    /// Sets the names of the scenarios; all if there are none.
    pub fn with_scenarios(mut self, scenarios: impl IntoIterator<Item: Into<String>>) -> Self {
        self.scenarios = scenarios.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long an answer may take.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the seed, which decides every choice that is left to chance.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets whether a host that is not local is confirmed to be your own.
    pub fn with_own_host(mut self, own_host: bool) -> Self {
        self.own_host = own_host;
        self
    }
}
