//! Addresses: `dynamodb://TABLE?region=eu-central-1&endpoint=http://127.0.0.1:8000`, and the SDK's client.

use std::sync::Arc;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Credentials, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_http_client::Builder as HttpBuilder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use onceward::{Error, ErrorKind, Result};

use crate::kit::dated_clock::DatedClock;
use crate::tls::{decoded, is_local, warn_unencrypted};

/// An address, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) table: String,
    /// An access key and its secret; without them, those that AWS's own tools would find.
    login: Option<(String, String)>,
    region: Option<String>,
    endpoint: Option<String>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("dynamodb://").ok_or_else(|| invalid(FORM))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, table) = place.rsplit_once('@').unwrap_or(("", place));
        let login = match login.split_once(':') {
            Some((key, secret)) => Some((decoded(key), decoded(secret))),
            None if login.is_empty() => None,
            None => return Err(invalid("a key needs its secret, as in KEY:SECRET@TABLE")),
        };
        if table.is_empty()
            || !table.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        {
            return Err(invalid(FORM));
        }
        let mut address = Self { table: table.to_owned(), login, region: None, endpoint: None };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("region", value)) if !value.is_empty() => address.region = Some(decoded(value)),
                Some(("endpoint", value)) if value.contains("://") || value.contains("%3A") => {
                    address.endpoint = Some(decoded(value));
                }
                _ => {
                    return Err(invalid(&format!(
                        "`{parameter}` is not known; there are region and endpoint"
                    )));
                }
            }
        }
        Ok(address)
    }

    /// A client with the credentials that AWS's own tools would find.
    pub(super) async fn client(&self, clock: &Arc<DatedClock>, call_timeout: Duration) -> Client {
        let http = HttpBuilder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            .timeout_config(TimeoutConfig::builder().operation_timeout(call_timeout).build());
        if let Some(region) = &self.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some((key, secret)) = &self.login {
            loader = loader.credentials_provider(Credentials::new(key, secret, None, None, "address"));
        }
        if let Some(endpoint) = &self.endpoint {
            if is_unencrypted(endpoint) {
                warn_unencrypted(&format!("DynamoDB at {endpoint}"));
            }
            loader = loader.endpoint_url(endpoint.clone());
        }
        with_clock(aws_sdk_dynamodb::config::Builder::from(&loader.load().await), clock)
    }
}

/// Whether calls to this endpoint can be read by other machines.
fn is_unencrypted(endpoint: &str) -> bool {
    let Some(rest) = endpoint.strip_prefix("http://") else { return false };
    let place = rest.split(['/', '?']).next().unwrap_or_default();
    let host = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => place,
    };
    !is_local(host)
}

/// A client that keeps this clock, and sends nothing twice.
pub(super) fn with_clock(config: aws_sdk_dynamodb::config::Builder, clock: &Arc<DatedClock>) -> Client {
    let config = config.retry_config(RetryConfig::disabled()).interceptor(ReadDate(Arc::clone(clock)));
    Client::from_conf(config.build())
}

const FORM: &str = "it looks like dynamodb://TABLE?region=eu-central-1";

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("this is no address of a DynamoDB table: {why}"))
}

/// Learns the time from every answer.
#[derive(Clone)]
struct ReadDate(Arc<DatedClock>);

impl std::fmt::Debug for ReadDate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadDate")
    }
}

/// When a call was sent, in elapsed time.
#[derive(Debug)]
struct CalledAt(i64);

impl Storable for CalledAt {
    type Storer = StoreReplace<Self>;
}

impl Intercept for ReadDate {
    fn name(&self) -> &'static str {
        "ReadDate"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        bag.interceptor_state().store_put(CalledAt(DatedClock::elapsed_us()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(CalledAt(called_us)) = bag.load::<CalledAt>() {
            self.0.learn(context.response().headers().get("date").map(str::as_bytes), *called_us);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_be_part_of_an_address() {
        let address = Address::parse("dynamodb://KEY:s%2Fcret@receipts").unwrap();
        assert_eq!(
            (address.table.as_str(), address.login),
            ("receipts", Some(("KEY".into(), "s/cret".into())))
        );
    }

    #[test]
    fn an_endpoint_on_another_machine_without_tls_is_unencrypted() {
        for (endpoint, expected) in [
            ("http://127.0.0.1:8000", false),
            ("http://localhost", false),
            ("http://[::1]:8000/", false),
            ("https://db.example", false),
            ("http://db.example:8000", true),
            ("http://10.0.0.7/", true),
        ] {
            assert_eq!(is_unencrypted(endpoint), expected, "{endpoint}");
        }
    }

    #[test]
    fn addresses_are_taken_apart_and_wrong_ones_say_why() {
        let address = Address::parse("dynamodb://receipts?region=eu-1&endpoint=http://h:1").unwrap();
        assert_eq!(address.table, "receipts");
        assert_eq!(
            (address.region.as_deref(), address.endpoint.as_deref()),
            (Some("eu-1"), Some("http://h:1"))
        );
        for (url, why) in [
            ("dynamodb:receipts", "looks like"),
            ("dynamodb://", "looks like"),
            ("dynamodb://a/b", "looks like"),
            ("dynamodb://key@a", "secret"),
            ("dynamodb://a?region=", "not known"),
            ("dynamodb://a?zone=b", "not known"),
            ("dynamodb://a?endpoint=b", "not known"),
        ] {
            let error = Address::parse(url).err().expect(url);
            assert!(error.to_string().contains(why), "{url}: {error}");
        }
    }
}
