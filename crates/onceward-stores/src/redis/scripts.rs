//! The scripts that run in the server. Each is one atomic step; none of them contains a rule of the protocol.

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};

/// A script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    /// Swaps a batch of records.
    Swap,
    /// Reads records.
    Read,
    /// Reads a stretch of indexes.
    List,
}

const SOURCES: [&str; 3] = [include_str!("swap.lua"), include_str!("read.lua"), include_str!("list.lua")];

/// The names under which one server has the scripts.
#[derive(Clone, Debug)]
pub(super) struct LoadedScripts([String; 3]);

impl LoadedScripts {
    pub(super) async fn load(connection: &mut MultiplexedConnection) -> RedisResult<Self> {
        let mut names = [const { String::new() }; 3];
        for (name, source) in names.iter_mut().zip(SOURCES) {
            *name = cmd("SCRIPT").arg("LOAD").arg(source).query_async(connection).await?;
        }
        Ok(Self(names))
    }

    pub(super) fn name(&self, script: Script) -> &str {
        &self.0[script as usize]
    }
}
