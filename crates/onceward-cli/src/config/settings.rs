//! The top-level settings. Each is a flag, an environment variable and a line of the file, and is described once here.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use toml::Spanned;

use super::effective_route::EffectiveRoute;
use super::route_settings::RouteSettings;
use super::values::Period;
use crate::address::ListenAddress;
use crate::proxy::ForwardedRule;

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
    /// Where receipts are stored; see below [default: embedded:./onceward-data].
    #[arg(long, value_name = "URL", env = "ONCEWARD_STORE", hide_env_values = true)]
    store: String,
    /// What to do with `X-Forwarded-*` and `Forwarded` that clients send [default: append].
    #[arg(long, value_name = "RULE", env = "ONCEWARD_FORWARDED")]
    forwarded: ForwardedRule,
    /// Intents that may run at once; more are refused with 503 [default: 10000].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_IN_FLIGHT_MAX")]
    in_flight_max: usize,
    /// Intents of one scope that may run at once; more are refused with 429 [default: no limit].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_IN_FLIGHT_PER_SCOPE_MAX")]
    in_flight_per_scope_max: usize,
    /// Connections from clients at once; more wait to be accepted [default: 10000].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_CONNECTIONS_MAX")]
    connections_max: usize,
    /// How long a client may take to send the head of a request [default: 10s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_HEAD_TIMEOUT")]
    head_timeout: Period,
    /// How long a client may take to send a body before a minimum rate is enforced [default: 10s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_BODY_GRACE")]
    body_grace: Period,
    /// How long a stopping gateway waits for requests in flight [default: 30s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_DRAIN_TIMEOUT")]
    drain_timeout: Period,
    /// How often expired receipts are removed [default: 60s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_SWEEP_EVERY")]
    sweep_every: Period,
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
