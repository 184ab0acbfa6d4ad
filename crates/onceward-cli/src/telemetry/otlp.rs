//! Sends traces to an OpenTelemetry collector over HTTP without TLS: run the collector on the same machine.

use std::sync::OnceLock;

use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Layer;

use super::BoxedLayer;

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// The layer that sends the spans of this project to the collector at `url`.
pub fn layer(url: &str) -> Result<BoxedLayer, String> {
    let uri: http::Uri = url.parse().map_err(|error| format!("{error}"))?;
    if uri.scheme_str() != Some("http") {
        return Err("only http:// is supported; run a collector on the same machine".into());
    }
    let endpoint = match uri.path() {
        "" | "/" => format!("{}/v1/traces", url.trim_end_matches('/')),
        _ => url.to_owned(),
    };
    let exporter = SpanExporter::builder().with_http().with_endpoint(endpoint).build();
    let exporter = exporter.map_err(|error| error.to_string())?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("onceward").build())
        .build();
    let tracer = provider.tracer("onceward");
    PROVIDER.set(provider).map_err(|_| "traces were started already")?;
    // Only spans of this project: not those of libraries, such as the one that sends the traces.
    let ours = Targets::new().with_target("onceward", tracing::Level::DEBUG);
    Ok(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(ours).boxed())
}

/// Puts a span into the trace that a request names in `traceparent`.
pub fn set_parent(span: &tracing::Span, headers: &HeaderMap) {
    if headers.contains_key("traceparent") {
        let parent = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
        // Fails if the span is not traced, which is fine.
        let _ = span.set_parent(parent);
    }
}

pub fn end() {
    if let Some(provider) = PROVIDER.get()
        && let Err(error) = provider.shutdown()
    {
        eprintln!("onceward: the last traces were not sent: {error}");
    }
}

struct HeaderExtractor<'a>(&'a HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
