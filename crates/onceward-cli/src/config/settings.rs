//! The top-level settings. Each is a flag, an environment variable and a line of the file, and is described once here.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use toml::Spanned;

use super::effective_route::EffectiveRoute;
use super::route_settings::RouteSettings;
use super::values::{Period, Rate, Size};
use crate::address::ListenAddress;
use crate::listener::Networks;
use crate::proxy::{PathParameters, Spelling};

macro_rules! settings {
    ($($(#[$meta:meta])* $name:ident: $kind:ty,)+) => {
        /// The addresses, the upstream, the store and the limits of the gateway. Flags override environment
        /// variables, and environment variables override the file.
        #[derive(Args, Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Settings {
            $($(#[$meta])* pub $name: Option<$kind>,)+

            /// The settings of every route that does not set its own.
            #[arg(skip)]
            pub defaults: RouteSettings,
            /// The routes, in the order in which they are matched.
            #[arg(skip)]
            pub route: Vec<Spanned<RouteSettings>>,
        }

        impl Settings {
            /// These settings, with those of the file where one is missing. Routes come from the file only.
            pub fn over(self, file: Self) -> Self {
                Self {
                    $($name: self.$name.or(file.$name),)+
                    defaults: file.defaults,
                    route: file.route,
                }
            }

            /// The names of the settings that differ.
            pub fn changed(&self, other: &Self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$name != other.$name { names.push(stringify!($name)); })+
                names
            }
        }
    };
}

settings! {
    /// The service behind the gateway, such as `http://127.0.0.1:3000` or `localhost:3000`.
    #[arg(long, value_name = "URL", env = "ONCEWARD_UPSTREAM")]
    upstream: String,
    /// Where clients connect: `127.0.0.1:8080`, `localhost:8080`, or `:8080` for all interfaces
    /// [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDRESS", env = "ONCEWARD_LISTEN")]
    listen: ListenAddress,
    /// Where operators connect: health, metrics, receipts [default: 127.0.0.1:8081].
    #[arg(long, value_name = "ADDRESS", env = "ONCEWARD_ADMIN")]
    admin: ListenAddress,
    /// What operators must send as `Authorization: Bearer TOKEN`. Required unless the admin address is loopback; at
    /// least 16 characters.
    #[arg(long, value_name = "TOKEN", env = "ONCEWARD_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: String,
    /// What applications must send instead, to claim, renew and complete through the receipts API. They can then do
    /// nothing else there, and operators not this. Needs `admin_token` [default: the admin token is for both].
    #[arg(long, value_name = "TOKEN", env = "ONCEWARD_APP_TOKEN", hide_env_values = true)]
    app_token: String,
    /// Where receipts are stored; see below [default: embedded:./onceward-data].
    #[arg(long, value_name = "URL", env = "ONCEWARD_STORE", hide_env_values = true)]
    store: String,
    /// The proxies in front of the gateway, such as `10.0.0.0/8,192.168.1.7`: their `X-Forwarded-*` and `Forwarded` are
    /// kept and extended, and limits per address do not apply to them. From everyone else these fields are removed
    /// [default: none].
    #[arg(long, value_name = "NETWORKS", env = "ONCEWARD_TRUSTED_PROXIES")]
    trusted_proxies: Networks,
    /// Whether paths are brought into one spelling, and those that services read differently (`..`, `//`, encoded
    /// slashes) are refused with 400 [default: true].
    #[arg(long, value_name = "BOOLEAN", env = "ONCEWARD_NORMALISE")]
    normalise: bool,
    /// Whether the service takes `/Charges` and `/charges` for the same: exact or ignore [default: exact].
    #[arg(long, value_name = "SPELLING", env = "ONCEWARD_PATH_CASE")]
    path_case: Spelling,
    /// Whether the service takes `/charges/` and `/charges` for the same: exact or ignore [default: exact].
    #[arg(long, value_name = "SPELLING", env = "ONCEWARD_TRAILING_SLASH")]
    trailing_slash: Spelling,
    /// What the service does with parameters in paths (`/charges;a=1`): ignore if it takes the path for `/charges`, exact if
    /// it makes a difference, refuse to answer such paths with 400 [default: refuse].
    #[arg(long, value_name = "RULE", env = "ONCEWARD_PATH_PARAMETERS")]
    path_parameters: PathParameters,
    /// Whether request fields with `_` in their names are passed. CGI, WSGI and their like read `_` as `-`, so that such a
    /// field could replace another one [default: false].
    #[arg(long, value_name = "BOOLEAN", env = "ONCEWARD_UNDERSCORE_FIELDS")]
    underscore_fields: bool,
    /// Whether `/.well-known/idempotency` tells the policy of every route to anyone; otherwise the path belongs to the
    /// service [default: true].
    #[arg(long, value_name = "BOOL", env = "ONCEWARD_PUBLISH")]
    publish: bool,
    /// Threads that serve connections. Twice the number of cores can give more throughput where the gateway shares its cores
    /// with other programs, and a longer p99 where it has them to itself [default: one for each core].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_THREADS")]
    threads: NonZeroUsize,
    /// Intents that may run at once; more are refused with 503 [default: 10000].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_IN_FLIGHT_MAX")]
    in_flight_max: NonZeroUsize,
    /// Intents of one scope that may run at once; more are refused with 429 [default: no limit].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_IN_FLIGHT_PER_SCOPE_MAX")]
    in_flight_per_scope_max: NonZeroUsize,
    /// Intents of one client address (IPv6: one /64 network) that may run at once; more are refused with 429. Behind
    /// `trusted_proxies`, of the client that they name [default: half of in-flight-max].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_IN_FLIGHT_PER_ADDRESS_MAX")]
    in_flight_per_address_max: NonZeroUsize,
    /// New keys of one client address (IPv6: one /64 network) within a time, such as `10000/1h`; more are refused with 429
    /// before anything is claimed. Replays, and keys that are freed, do not count. Each process counts by itself; behind
    /// `trusted_proxies`, it counts the client that they name [default: no limit].
    #[arg(long, value_name = "NUMBER/TIME", env = "ONCEWARD_NEW_KEYS_PER_ADDRESS_MAX")]
    new_keys_per_address_max: Rate,
    /// The same for one scope [default: no limit].
    #[arg(long, value_name = "NUMBER/TIME", env = "ONCEWARD_NEW_KEYS_PER_SCOPE_MAX")]
    new_keys_per_scope_max: Rate,
    /// Guarded requests at once that wait for the same intent or are looked up in the store. One more does not wait: it is
    /// refused with 409 in-progress if its intent runs already, and runs or is replayed otherwise
    /// [default: four times in-flight-max].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_ANSWERING_MAX")]
    answering_max: NonZeroUsize,
    /// Connections from clients at once. A new one replaces the oldest that is idle; if none is, it waits to be accepted
    /// [default: 10000].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_CONNECTIONS_MAX")]
    connections_max: NonZeroUsize,
    /// Connections from one address at once (IPv6: from one /64 network); more are closed. Not for `trusted_proxies`
    /// [default: half of connections-max].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_CONNECTIONS_PER_ADDRESS_MAX")]
    connections_per_address_max: NonZeroUsize,
    /// How long a client may take to send the head of a request, and the first one after it has connected
    /// [default: 10s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_HEAD_TIMEOUT")]
    head_timeout: Period,
    /// How long a connection may be without a request, after the first one [default: 75s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_IDLE_TIMEOUT")]
    idle_timeout: Period,
    /// How long a client that sends a body may pause; in the long run it must send 256 bytes a second [default: 10s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_BODY_GRACE")]
    body_grace: Period,
    /// How long a client may leave a response unread; then it is disconnected, and the response is still recorded
    /// [default: 30s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_WRITE_TIMEOUT")]
    write_timeout: Period,
    /// Bytes of request bodies that are held in memory at once, all guarded requests together; more are refused with
    /// 503 [default: 256MiB].
    #[arg(long, value_name = "SIZE", env = "ONCEWARD_BODY_BYTES_MAX")]
    body_bytes_max: Size,
    /// The part of it for one client address (IPv6: one /64 network); more are refused with 429 [default: half of
    /// body-bytes-max].
    #[arg(long, value_name = "SIZE", env = "ONCEWARD_BODY_BYTES_PER_ADDRESS_MAX")]
    body_bytes_per_address_max: Size,
    /// How long after SIGTERM new connections are still accepted, while /readyz says that it is stopping: the time that
    /// a load balancer needs to notice [default: 5s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_DRAIN_DELAY")]
    drain_delay: Period,
    /// How long a stopping gateway waits for requests in flight, after the delay [default: 30s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_DRAIN_TIMEOUT")]
    drain_timeout: Period,
    /// How often expired receipts are removed [default: 60s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_SWEEP_EVERY")]
    sweep_every: Period,
    /// An unknown outcome that was not settled for this long becomes dead. It is still unknown, and is not tried
    /// again until it is settled [default: never].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_UNKNOWN_AFTER")]
    unknown_after: Period,
    /// The certificate chain (PEM) to serve HTTPS with; needs `tls_key`.
    #[arg(long, value_name = "FILE", env = "ONCEWARD_TLS_CERT")]
    tls_cert: PathBuf,
    /// The private key (PEM) of the certificate.
    #[arg(long, value_name = "FILE", env = "ONCEWARD_TLS_KEY")]
    tls_key: PathBuf,
    /// The certificate authorities (PEM) of client certificates. Clients must then present one. For `scope = "mtls"`.
    #[arg(long, value_name = "FILE", env = "ONCEWARD_TLS_CLIENT_CA")]
    tls_client_ca: PathBuf,
    /// The key that tokens are verified with, for `scope = "jwt:CLAIM"`: a public key (PEM), or a secret for HS256.
    #[arg(long, value_name = "FILE", env = "ONCEWARD_JWT_KEY")]
    jwt_key: PathBuf,
}

/// All routes of a configuration, and the settings for requests that match none of them.
#[derive(Clone, Debug)]
pub struct Routes {
    pub list: Vec<EffectiveRoute>,
    pub otherwise: EffectiveRoute,
}

impl Settings {
    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<(Self, Routes), String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Parses the text of a configuration file.
    pub fn parse(text: &str) -> Result<(Self, Routes), String> {
        let settings: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let routes = settings.routes(text)?;
        Ok((settings, routes))
    }

    /// The routes in effect without a file.
    pub fn built_in_routes() -> Routes {
        let otherwise =
            EffectiveRoute::new(&RouteSettings::default()).expect("the built-in settings are valid");
        Routes { list: Vec::new(), otherwise }
    }

    fn routes(&self, text: &str) -> Result<Routes, String> {
        if self.defaults.path.is_some() {
            return Err("[defaults]: path: only a [[route]] can have a path".into());
        }
        let otherwise =
            EffectiveRoute::new(&self.defaults).map_err(|error| format!("[defaults]: {error}"))?;
        let routes = self.route.iter().map(|route| {
            let line = text[..route.span().start].matches('\n').count() + 1;
            let named = route.get_ref().path.as_ref().map_or(String::new(), |path| format!(" {path}"));
            let wrong = |error: String| format!("line {line}: [[route]]{named}: {error}");
            if route.get_ref().path.is_none() {
                return Err(wrong("path: it is missing; write one, as in path = \"/charges\"".into()));
            }
            EffectiveRoute::new(&route.get_ref().over(&self.defaults)).map_err(wrong)
        });
        Ok(Routes { list: routes.collect::<Result<_, _>>()?, otherwise })
    }
}

impl Routes {
    /// All routes, and last the settings for requests that match none.
    pub fn each(&self) -> impl Iterator<Item = &EffectiveRoute> {
        self.list.iter().chain([&self.otherwise])
    }
}

#[cfg(test)]
#[path = "settings_test.rs"]
mod tests;
