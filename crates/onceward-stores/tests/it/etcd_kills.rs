//! The leader of an etcd cluster is killed and frozen under load, again and again: nothing that was acknowledged is lost.

use std::sync::Arc;
use std::time::Duration;

use onceward::Store;
use onceward_stores::EtcdStore;
use onceward_stores::etcd::Options;

use crate::kill_load::{Load, WRITES_PER_KILL};
use crate::servers::Etcd;
use crate::support::usual_or_long;

async fn open(url: &str) -> Arc<dyn Store> {
    let options = Options::default().with_call_timeout(Duration::from_secs(2));
    Arc::new(EtcdStore::open(url, options).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_with_a_leader() {
    let Some(mut nodes) = Etcd::start_cluster() else { return };
    let url = Etcd::cluster_url(&nodes);
    let load = Load::start(&open(&url).await);
    for kill in 0..usual_or_long(10, 50) {
        load.more(WRITES_PER_KILL).await;
        let leader = tokio::task::block_in_place(|| {
            let leader = Etcd::leader(&nodes);
            nodes[leader].kill();
            leader
        });
        // The other two go on.
        load.more(WRITES_PER_KILL / 10).await;
        tokio::task::block_in_place(|| nodes[leader].up());
        // And now and then one that only stands still.
        if kill % 5 == 4 {
            load.more(WRITES_PER_KILL).await;
            let leader = tokio::task::block_in_place(|| Etcd::leader(&nodes));
            nodes[leader].freeze();
            load.more(WRITES_PER_KILL / 10).await;
            nodes[leader].thaw();
        }
    }
    let (lost, acknowledged) = load.lost(&*open(&url).await).await;
    assert!(lost.is_empty(), "{} of {acknowledged} acknowledged ids are lost: {lost:?}", lost.len());
}
