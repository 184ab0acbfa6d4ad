//! A connection after its upgrade. Its HTTP connection has ended by then, and with it the task that enforced its deadlines, so
//! they are enforced here until the bytes of both sides are copied.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::connection_slots::ConnectionSlots;
use super::connection_watch::{ConnectionWatch, RequestInProgress};

/// The connection of a request that asks for an upgrade.
#[derive(Clone, Debug)]
pub struct UpgradingConnection {
    slots: Arc<ConnectionSlots>,
    watch: Arc<ConnectionWatch>,
}

/// A connection that is being upgraded. It counts as in use until this is dropped, so that nothing evicts it.
#[derive(Debug)]
pub struct UpgradedConnection {
    connection: UpgradingConnection,
    _in_use: RequestInProgress,
}

impl UpgradingConnection {
    pub fn new(slots: Arc<ConnectionSlots>, watch: Arc<ConnectionWatch>) -> Self {
        Self { slots, watch }
    }

    /// The upgrade was agreed on. Called before the response is handed over: the connection would be idle in between.
    pub fn agreed(self) -> UpgradedConnection {
        let in_use = self.watch.begin_request(false);
        UpgradedConnection { connection: self, _in_use: in_use }
    }
}

impl UpgradedConnection {
    /// Copies bytes between the client and the service until both sides have ended or the client leaves bytes unread for
    /// too long. After one side has ended, the other one may send for `rest_max`: a client that is gone would hold both
    /// connections for as long as the service keeps its own.
    pub async fn join<C, S>(self, client: C, service: S, rest_max: Duration)
    where
        C: AsyncRead + AsyncWrite,
        S: AsyncRead + AsyncWrite,
    {
        let UpgradingConnection { slots, watch } = &self.connection;
        match slots.drive(watch, copy_both(client, service, rest_max)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "an upgraded connection failed"),
            Err(closed) => tracing::debug!(reason = closed.name(), "an upgraded connection was closed"),
        }
    }
}

async fn copy_both(
    client: impl AsyncRead + AsyncWrite,
    service: impl AsyncRead + AsyncWrite,
    rest_max: Duration,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_service, mut to_service) = tokio::io::split(service);
    let there = async {
        tokio::io::copy(&mut from_client, &mut to_service).await?;
        to_service.shutdown().await
    };
    let back = async {
        tokio::io::copy(&mut from_service, &mut to_client).await?;
        to_client.shutdown().await
    };
    let (mut there, mut back) = (std::pin::pin!(there), std::pin::pin!(back));
    let rest = tokio::select! {
        ended = &mut there => {
            ended?;
            tokio::time::timeout(rest_max, back).await
        }
        ended = &mut back => {
            ended?;
            tokio::time::timeout(rest_max, there).await
        }
    };
    rest.unwrap_or(Ok(()))
}

#[cfg(test)]
#[path = "upgraded_test.rs"]
mod tests;
