//! Logs of the process, and traces where that feature is built in.
//!
//! One span per request, at level debug: with the default filter it costs nothing, `--log debug` adds the request to
//! every line of the log, and a collector gets all spans.

#[cfg(feature = "otel")]
mod otlp;

use std::process::ExitCode;

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::SubscriberInitExt;

/// How a command logs. Logs go to standard error; standard output belongs to the command.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// What to log: error, warn, info, debug, trace, or a filter such as `onceward=debug,info`.
    #[arg(long, value_name = "FILTER", env = "RUST_LOG", default_value = "info")]
    log: String,
    /// The format of the log.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// Send traces to this OpenTelemetry collector.
    #[cfg(feature = "otel")]
    #[arg(
        long,
        value_name = "URL",
        env = "ONCEWARD_OTLP",
        help = "Send traces to this OpenTelemetry collector, such as http://127.0.0.1:4318"
    )]
    otlp: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

impl Args {
    /// Starts logging. If the arguments are not valid, prints a message and returns the exit code.
    pub fn start(&self) -> Result<(), ExitCode> {
        self.try_start().map_err(|message| {
            eprintln!("onceward: {message}");
            ExitCode::from(2)
        })
    }

    fn try_start(&self) -> Result<(), String> {
        let layers = [
            Some(self.logs()?),
            #[cfg(feature = "otel")]
            self.traces()?,
        ];
        tracing_subscriber::registry().with(layers.into_iter().flatten().collect::<Vec<_>>()).init();
        Ok(())
    }

    fn logs(&self) -> Result<BoxedLayer, String> {
        use std::io::IsTerminal;

        let filter = EnvFilter::try_new(&self.log).map_err(|error| format!("--log {}: {error}", self.log))?;
        let to_stderr = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        Ok(match self.log_format {
            Format::Text => to_stderr.with_ansi(std::io::stderr().is_terminal()).with_filter(filter).boxed(),
            Format::Json => to_stderr.json().flatten_event(true).with_filter(filter).boxed(),
        })
    }

    #[cfg(feature = "otel")]
    fn traces(&self) -> Result<Option<BoxedLayer>, String> {
        let layer = |url: &String| otlp::layer(url).map_err(|error| format!("--otlp {url}: {error}"));
        self.otlp.as_ref().map(layer).transpose()
    }
}

/// Sends the remaining traces to the collector. Called last in a process.
pub fn end() {
    #[cfg(feature = "otel")]
    otlp::end();
}

/// The span of one request, in the trace that the caller names, if any. It contains the key only as [`hashed`].
pub fn span<B>(listener: &'static str, request: &http::Request<B>) -> tracing::Span {
    let span = tracing::debug_span!(
        "request",
        listener,
        method = %request.method(),
        path = request.uri().path(),
        key = tracing::field::Empty,
    );
    if span.is_disabled() {
        return span;
    }
    if let Some(Ok(key)) = request.headers().get("idempotency-key").map(http::HeaderValue::to_str) {
        span.record("key", hashed(key.trim_matches('"')));
    }
    #[cfg(feature = "otel")]
    otlp::set_parent(&span, request.headers());
    span
}

/// The hash of a key for logs: it identifies the key without revealing it.
fn hashed(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex()[..12].to_owned()
}
