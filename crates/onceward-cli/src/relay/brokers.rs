//! The brokers that a relay publishes to: one line each. What a build leaves out is named with the feature that adds it.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use onceward::{Error, ErrorKind, Result};
use onceward_flows::{HttpPublisher, Publisher, RedisPublisher};
use onceward_http::webhook::Signer;

type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Publisher>>> + 'a>>;

/// Where to publish.
#[derive(clap::Args)]
pub struct Destination {
    /// The broker: nats://, redis://, amqp://, kafka:// or https://.
    #[arg(long, value_name = "URL")]
    to: String,

    /// The first word of the subjects, streams or queues; the topic of Kafka.
    #[arg(long, value_name = "WORD", default_value = "onceward")]
    prefix: String,

    /// How many partitions there are; the same as the consumers'.
    #[arg(long, value_name = "N", default_value_t = 16)]
    partitions: u32,

    /// RabbitMQ: publish to this exchange, with the topic as routing key, instead of to streams.
    #[arg(long, value_name = "NAME")]
    exchange: Option<String>,

    /// HTTP: sign requests as Standard Webhooks, with the secret in this file.
    #[arg(long, value_name = "FILE")]
    webhook_secret: Option<PathBuf>,

    /// Redis: accept a server without an append-only file, which loses confirmed messages when it dies.
    #[arg(long)]
    accept_unsaved: bool,
}

struct Broker {
    schemes: &'static [&'static str],
    looks_like: &'static str,
    open: for<'a> fn(&'a Destination) -> Opening<'a>,
}

const BROKERS: [Broker; 5] = [
    Broker { schemes: &["nats", "tls"], looks_like: "nats://host:4222", open: nats },
    Broker { schemes: &["redis"], looks_like: "redis://host:6379/0", open: redis },
    Broker { schemes: &["amqp"], looks_like: "amqp://user:password@host:5672/%2f", open: rabbitmq },
    Broker { schemes: &["https", "http"], looks_like: "https://host/path", open: http },
    Broker { schemes: &["kafka"], looks_like: "kafka://host:9092", open: kafka },
];

impl Destination {
    pub async fn open(&self) -> Result<Arc<dyn Publisher>> {
        let scheme = self.to.split_once("://").map_or("", |(scheme, _)| scheme);
        let Some(broker) = BROKERS.iter().find(|broker| broker.schemes.contains(&scheme)) else {
            let known = BROKERS.map(|broker| broker.looks_like).join(", ");
            return Err(Error::new(ErrorKind::Invalid, format!("--to is none of these: {known}")));
        };
        (broker.open)(self).await
    }

    /// As a person is told: without a password.
    pub fn shown(&self) -> String {
        let (scheme, rest) = self.to.split_once("://").unwrap_or(("", &self.to));
        let host = rest.split(['/', '?']).next().unwrap_or_default();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        format!("{scheme}://{host}")
    }
}

#[cfg(feature = "nats")]
fn nats(to: &Destination) -> Opening<'_> {
    Box::pin(async {
        let client = async_nats::connect(&to.to)
            .await
            .map_err(|error| Error::new(ErrorKind::Unavailable, "cannot connect to NATS").caused_by(error))?;
        let context = async_nats::jetstream::new(client);
        let publisher = onceward_flows::NatsPublisher::new(context, &to.prefix, to.partitions)?;
        Ok(Arc::new(publisher) as Arc<dyn Publisher>)
    })
}

#[cfg(not(feature = "nats"))]
fn nats(_: &Destination) -> Opening<'_> {
    missing("nats", "NATS")
}

fn redis(to: &Destination) -> Opening<'_> {
    Box::pin(async {
        let publisher = if to.accept_unsaved {
            RedisPublisher::open_unsaved(&to.to, &to.prefix, to.partitions).await?
        } else {
            RedisPublisher::open(&to.to, &to.prefix, to.partitions).await?
        };
        Ok(Arc::new(publisher) as Arc<dyn Publisher>)
    })
}

#[cfg(feature = "rabbitmq")]
fn rabbitmq(to: &Destination) -> Opening<'_> {
    use onceward_flows::{RabbitMqPublisher, RabbitMqStreams};

    Box::pin(async {
        let publisher = match &to.exchange {
            Some(exchange) => RabbitMqPublisher::open_exchange(&to.to, exchange).await?,
            None => {
                RabbitMqPublisher::open(&RabbitMqStreams::new(&to.to, &to.prefix, to.partitions)?).await?
            }
        };
        Ok(Arc::new(publisher) as Arc<dyn Publisher>)
    })
}

#[cfg(not(feature = "rabbitmq"))]
fn rabbitmq(to: &Destination) -> Opening<'_> {
    let _ = &to.exchange;
    missing("rabbitmq", "RabbitMQ")
}

fn http(to: &Destination) -> Opening<'_> {
    Box::pin(async {
        let invalid = |error: String| Error::new(ErrorKind::Invalid, error);
        let client = onceward_client::Client::builder()
            .build()
            .map_err(|error| Error::new(ErrorKind::Invalid, "no client for HTTP").caused_by(error))?;
        let mut publisher = HttpPublisher::new(client, &to.to)?;
        if let Some(path) = &to.webhook_secret {
            let secret = std::fs::read_to_string(path)
                .map_err(|error| invalid(format!("the file of the secret cannot be read: {error}")))?;
            publisher = publisher.with_signer(Signer::new(secret.trim())?);
        }
        Ok(Arc::new(publisher) as Arc<dyn Publisher>)
    })
}

#[cfg(feature = "kafka")]
fn kafka(to: &Destination) -> Opening<'_> {
    Box::pin(async {
        let servers = to.to.trim_start_matches("kafka://");
        let publisher = onceward_flows::KafkaPublisher::open(servers, &to.prefix, to.partitions).await?;
        Ok(Arc::new(publisher) as Arc<dyn Publisher>)
    })
}

#[cfg(not(feature = "kafka"))]
fn kafka(_: &Destination) -> Opening<'_> {
    missing("kafka", "Kafka")
}

#[cfg(not(all(feature = "kafka", feature = "nats", feature = "rabbitmq")))]
fn missing(feature: &'static str, broker: &'static str) -> Opening<'static> {
    let detail = format!(
        "this build does not publish to {broker}; build it with `cargo build --release -p onceward-cli --features {feature}`"
    );
    Box::pin(std::future::ready(Err(Error::new(ErrorKind::Invalid, detail))))
}
