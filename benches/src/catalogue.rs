//! Lists every benchmark by name and runs one of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::compare::{
    allocations, client, duplicates, embedded, engine, front, gateway, growth, instructions, layer, messages,
    owner_death, postgres, postgres_growth, redis, saga, sweep, webhook, worker,
};
use crate::process::Missing;
use crate::report::{Ending, Entry, Findings};
use crate::scale::Scale;

/// A benchmark that can be called by its name.
pub struct Benchmark {
    /// The name.
    pub name: &'static str,
    /// What it compares.
    pub about: &'static str,
    /// Whether it runs without being named.
    pub when: When,
    run: fn(&Scale) -> Result<Findings, Missing>,
}

/// When a benchmark runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Whenever no names are given.
    Always,
    /// Only by its name: it takes too long for every day.
    Named,
}

/// All of them, in the order in which they run: what takes microseconds in this process comes before what leaves its
/// memory full of holes.
pub static ALL: &[Benchmark] = &[
    Benchmark {
        name: "gateway",
        about: "onceward proxy with synced embedded receipts, next to nginx as a plain proxy: same upstream, same load",
        when: When::Always,
        run: gateway::run,
    },
    Benchmark {
        name: "engine",
        about: "the engine over the memory store, one caller, next to the bare closure",
        when: When::Always,
        run: engine::run,
    },
    Benchmark {
        name: "layer",
        about: "the HTTP layer over the memory store, in process, next to the bare handler",
        when: When::Always,
        run: layer::run,
    },
    Benchmark {
        name: "client",
        about: "the retrying client, alone and with a synced journal, next to bare reqwest",
        when: When::Always,
        run: client::run,
    },
    Benchmark {
        name: "embedded",
        about: "the embedded store through the engine, next to a bare fjall loop and to the protocol written plainly on SQLite",
        when: When::Always,
        run: embedded::run,
    },
    Benchmark {
        name: "postgres",
        about: "the PostgreSQL store and transactions, next to the same by hand",
        when: When::Always,
        run: postgres::run,
    },
    Benchmark {
        name: "front",
        about: "replays of another process's runs through a front in Redis, next to those through PostgreSQL; first runs with and without it",
        when: When::Always,
        run: front::run,
    },
    Benchmark {
        name: "redis",
        about: "the Redis store through the engine, next to SET NX and SET by redis-benchmark, with a synced log and with none",
        when: When::Always,
        run: redis::run,
    },
    Benchmark {
        name: "worker",
        about: "tasks that are enqueued, claimed and completed by workers, next to SKIP LOCKED by hand and to claims alone",
        when: When::Always,
        run: worker::run,
    },
    Benchmark {
        name: "saga",
        about: "a saga of two transactions on PostgreSQL, next to the two transactions alone; and its resumption after SIGKILL",
        when: When::Always,
        run: saga::run,
    },
    Benchmark {
        name: "webhook",
        about: "webhooks that the gateway stores first and delivers, next to plain guarded requests through it",
        when: When::Always,
        run: webhook::run,
    },
    Benchmark {
        name: "messages",
        about: "messages in PostgreSQL: relay, consumer and outbox, next to the same by hand",
        when: When::Always,
        run: messages::run,
    },
    Benchmark {
        name: "messages-latency",
        about: "how soon a message is published, at a tenth of what the relay can do, in one process and across two",
        when: When::Always,
        run: messages::latency::run,
    },
    Benchmark {
        name: "messages-nats",
        about: "a relay to NATS JetStream, next to bare publishes with acknowledgements",
        when: When::Always,
        run: messages::nats::run,
    },
    Benchmark {
        name: "growth",
        about: "the embedded store as it grows: claims, latency, memory, disk",
        when: When::Always,
        run: growth::run,
    },
    Benchmark {
        name: "postgres-growth",
        about: "the PostgreSQL store as it grows: claims, latency, memory, disk",
        when: When::Always,
        run: postgres_growth::run,
    },
    Benchmark {
        name: "sweep",
        about: "claims while expired receipts are swept beside them, next to claims alone; embedded store",
        when: When::Always,
        run: sweep::embedded,
    },
    Benchmark {
        name: "postgres-sweep",
        about: "the same in the PostgreSQL store",
        when: When::Always,
        run: sweep::postgres,
    },
    Benchmark {
        name: "duplicates",
        about: "a storm of copies of one running intent: store trips, and how fast they are answered",
        when: When::Always,
        run: duplicates::run,
    },
    Benchmark {
        name: "owner-death",
        about: "a process that runs an intent is killed: how long until one that waits may run it, in leases",
        when: When::Always,
        run: owner_death::run,
    },
    Benchmark {
        name: "allocations",
        about: "allocations of one call through the engine and through the layer, counted exactly",
        when: When::Always,
        run: allocations::run,
    },
    Benchmark {
        name: "instructions",
        about: "instructions of one call through the layer, counted by callgrind",
        when: When::Always,
        run: instructions::run,
    },
    Benchmark {
        name: "gateway-settings",
        about: "the gateway with twice as many threads as cores, and with a record of the same request, next to its defaults",
        when: When::Named,
        run: gateway::settings::run,
    },
    Benchmark {
        name: "gateway-memory",
        about: "the gateway's memory over ten minutes at full load, every request with a fresh key",
        when: When::Named,
        run: gateway::memory::run,
    },
    Benchmark {
        name: "messages-dead-rows",
        about: "a relay under steady load beside a transaction that stays open for ten minutes, next to the same before",
        when: When::Named,
        run: messages::dead_rows::run,
    },
];

impl Benchmark {
    /// The one with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|benchmark| benchmark.name == name)
    }

    /// Runs it and catches its failure, so that the other benchmarks still run.
    pub fn run(&self, scale: &Scale) -> Entry {
        let start = Instant::now();
        let ending = match catch_unwind(AssertUnwindSafe(|| (self.run)(scale))) {
            Ok(Ok(findings)) => Ending::Measured(findings),
            Ok(Err(Missing(what))) => Ending::Missing(what),
            Err(panic) => {
                let words = panic.downcast_ref::<String>().cloned();
                let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
                Ending::Failed(words.unwrap_or_else(|| "it panicked".to_owned()))
            }
        };
        Entry { name: self.name, about: self.about, seconds: start.elapsed().as_secs_f64(), ending }
    }
}
