//! The top-level values: each a flag, an environment variable and a line of the file, described once.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use toml::Spanned;

use super::effective::Effective;
use super::terms::Terms;
use super::values::Period;
use crate::address::ListenAddress;
use crate::proxy::Forwarding;

macro_rules! settings {
    ($($(#[$meta:meta])* $name:ident: $kind:ty,)+) => {
        /// Where the gateway is, what is behind it, and its bounds. Flags count before environment variables,
        /// and those before the file.
        #[derive(Args, Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Settings {
            $($(#[$meta])* pub $name: Option<$kind>,)+

            /// The terms of every route that does not say otherwise.
            #[arg(skip)]
            pub defaults: Terms,
            /// The routes, in the order in which they are tried.
            #[arg(skip)]
            pub route: Vec<Spanned<Terms>>,
        }

        impl Settings {
            /// These values, and where they say nothing, those of the file. Routes are the file's.
            pub fn over(self, file: Self) -> Self {
                Self {
                    $($name: self.$name.or(file.$name),)+
                    defaults: file.defaults,
                    route: file.route,
                }
            }

            /// The names of the values that differ.
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
    forwarded: Forwarding,
    /// Intents that may run at once; more are refused with 503 [default: 10000].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_IN_FLIGHT_MAX")]
    in_flight_max: usize,
    /// Intents of one scope that may run at once; more are refused with 429 [default: no bound].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_IN_FLIGHT_PER_SCOPE_MAX")]
    in_flight_per_scope_max: usize,
    /// Connections from clients at once; more wait to be accepted [default: 10000].
    #[arg(long, value_name = "NUMBER", env = "ONCEWARD_CONNECTIONS_MAX")]
    connections_max: usize,
    /// How long a client may take to send the head of a request [default: 10s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_HEAD_TIMEOUT")]
    head_timeout: Period,
    /// How long a client may take to send a body before a least rate is asked of it [default: 10s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_BODY_GRACE")]
    body_grace: Period,
    /// How long a stopping gateway waits for what is in flight [default: 30s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_DRAIN_TIMEOUT")]
    drain_timeout: Period,
    /// How often expired receipts are swept [default: 60s].
    #[arg(long, value_name = "TIME", env = "ONCEWARD_SWEEP_EVERY")]
    sweep_every: Period,
    /// The certificate chain (PEM) to serve HTTPS with; needs `tls_key`.
    #[arg(long, value_name = "FILE", env = "ONCEWARD_TLS_CERT")]
    tls_cert: PathBuf,
    /// The private key (PEM) of the certificate.
    #[arg(long, value_name = "FILE", env = "ONCEWARD_TLS_KEY")]
    tls_key: PathBuf,
    /// Who may issue client certificates (PEM); clients must then show one. For `scope = "mtls"`.
    #[arg(long, value_name = "FILE", env = "ONCEWARD_TLS_CLIENT_CA")]
    tls_client_ca: PathBuf,
    /// The key that tokens are verified with, for `scope = "jwt:CLAIM"`: a public key (PEM), or a secret for HS256.
    #[arg(long, value_name = "FILE", env = "ONCEWARD_JWT_KEY")]
    jwt_key: PathBuf,
}

/// Every route of a configuration, each with all its terms, and what holds where none matches.
#[derive(Clone, Debug)]
pub struct Routes {
    pub list: Vec<Effective>,
    pub otherwise: Effective,
}

impl Settings {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<(Self, Routes), String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<(Self, Routes), String> {
        let settings: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let routes = settings.routes(text)?;
        Ok((settings, routes))
    }

    /// The terms that hold without a file.
    pub fn built_in_routes() -> Routes {
        let otherwise = Effective::new(&Terms::default()).expect("the built-in terms agree with each other");
        Routes { list: Vec::new(), otherwise }
    }

    fn routes(&self, text: &str) -> Result<Routes, String> {
        if self.defaults.path.is_some() {
            return Err("[defaults]: path: only a [[route]] has a path".into());
        }
        let otherwise = Effective::new(&self.defaults).map_err(|error| format!("[defaults]: {error}"))?;
        let routes = self.route.iter().map(|terms| {
            let line = text[..terms.span().start].matches('\n').count() + 1;
            let named = terms.get_ref().path.as_ref().map_or(String::new(), |path| format!(" {path}"));
            let wrong = |error: String| format!("line {line}: [[route]]{named}: {error}");
            if terms.get_ref().path.is_none() {
                return Err(wrong(
                    "path: it is missing; a route needs one, as in path = \"/charges\"".into(),
                ));
            }
            Effective::new(&terms.get_ref().over(&self.defaults)).map_err(wrong)
        });
        Ok(Routes { list: routes.collect::<Result<_, _>>()?, otherwise })
    }
}

impl Routes {
    /// All of them, the catch-all last.
    pub fn each(&self) -> impl Iterator<Item = &Effective> {
        self.list.iter().chain([&self.otherwise])
    }
}

#[cfg(test)]
#[path = "settings_test.rs"]
mod tests;
