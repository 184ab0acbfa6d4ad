//! The helper program of the benchmarks: makes calls that callgrind counts, holds a claim until it is killed, or adds
//! messages that a relay of another process publishes.
//!
//! ```text
//! probe layer first|replay|no-key|bare|bare-keyless|distinct|distinct-counted|distinct-refused CALLS
//! probe engine first|replay|bare CALLS
//! probe client plain|journal|bare CALLS
//! probe hold STORE LEASE_MS KEY
//! probe saga STORE
//! probe messages DATABASE RATE MILLISECONDS
//! ```

use std::hint::black_box;

use onceward_bench::compare::messages::latency;
use onceward_bench::compare::{client, engine, layer, owner_death, saga};
use onceward_client::Client;
use onceward_http::OnSameRequest;

/// The same allocator as the binary `onceward`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    // One thread: nothing spins, so every run counts the same.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match args[..] {
        ["layer", kind, calls] => runtime.block_on(calls_through_layer(kind, calls.parse().unwrap())),
        ["engine", kind, calls] => runtime.block_on(calls_of_engine(kind, calls.parse().unwrap())),
        ["client", kind, calls] => runtime.block_on(calls_of_client(kind, calls.parse().unwrap())),
        ["hold", store, lease_ms, key] => {
            runtime.block_on(owner_death::hold(store, lease_ms.parse().unwrap(), key));
        }
        ["messages", database, rate, length_ms] => {
            let length = std::time::Duration::from_millis(length_ms.parse().unwrap());
            runtime.block_on(latency::add_and_say(database, rate.parse().unwrap(), length));
        }
        ["saga", store] => runtime.block_on(saga::work(store)),
        _ => panic!("see the head of this file for what can be asked"),
    }
}

async fn calls_through_layer(kind: &str, calls: usize) {
    let mut service = match kind {
        "distinct-counted" => layer::guarded_with_record(OnSameRequest::Count),
        "distinct-refused" => layer::guarded_with_record(OnSameRequest::Refuse),
        _ => layer::guarded(),
    };
    for at in 0..calls {
        // As long to make for all that have one: keys are the client's.
        let key = format!("k{}", if kind == "replay" { 0 } else { at });
        match kind {
            "first" | "replay" => layer::send(&mut service, layer::request(Some(&key))).await,
            "bare" => layer::send(&mut layer::Handler, layer::request(Some(&key))).await,
            "no-key" => layer::send(&mut service, layer::request(None)).await,
            "bare-keyless" => layer::send(&mut layer::Handler, layer::request(None)).await,
            "distinct" | "distinct-counted" | "distinct-refused" => {
                layer::send(&mut service, layer::distinct_request(&key, at)).await;
                // What is done beside a request is part of its cost.
                tokio::task::yield_now().await;
            }
            _ => panic!("no such kind: {kind}"),
        }
    }
}

async fn calls_of_engine(kind: &str, calls: usize) {
    let onceward = engine::engine();
    for at in 0..calls {
        let answer = match kind {
            "first" => onceward.run(engine::ask(0, at), engine::under_lease).await,
            "replay" => onceward.run(engine::ask(0, 0), engine::under_lease).await,
            "bare" => {
                drop(black_box(engine::work().await));
                continue;
            }
            _ => panic!("no such kind: {kind}"),
        };
        drop(black_box(answer.unwrap()));
    }
}

/// Makes this number of calls, with as many callers as in the comparison.
async fn calls_of_client(kind: &str, calls: usize) {
    let (url, folder) = (client::serve(), tempfile::tempdir().unwrap());
    let bare = client::bare();
    let ours = match kind {
        "plain" => Some(Client::builder().build().unwrap()),
        "journal" => Some(client::journaled(folder.path()).await),
        "bare" => None,
        _ => panic!("no such kind: {kind}"),
    };
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..client::CALLERS {
        let (url, ours, bare) = (url.clone(), ours.clone(), bare.clone());
        callers.spawn(async move {
            for _ in 0..calls / client::CALLERS {
                match &ours {
                    Some(ours) => client::call(ours, &url).await,
                    None => client::call_bare(&bare, &url).await,
                }
            }
        });
    }
    callers.join_all().await;
}
