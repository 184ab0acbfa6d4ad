//! A process that drives a saga on the embedded store is killed. The next process that opens the store knows that the
//! former one is dead, and goes on at once: it waits for no lease.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use onceward::Onceward;
use onceward_flows::{Saga, SagaState, Step, StepResult};
use onceward_stores::EmbeddedStore;
use onceward_stores::embedded::Options;
use tempfile::tempdir;

const FOLDER: &str = "ONCEWARD_KILLED_SAGA";
const SAYS: &str = "the step runs";
const LEASE: Duration = Duration::from_secs(30);
/// A sixth of the lease. It usually takes some hundredths of a second, most of it for opening the store; the rest is for
/// machines that run other tests beside this one. A process that waits for the lease waits for nearly all of it.
const AT_ONCE: Duration = Duration::from_secs(5);

async fn engine(folder: &Path) -> Onceward {
    let store = EmbeddedStore::open(folder, Options::default()).await.unwrap();
    Onceward::new(Arc::new(store)).unwrap()
}

/// A saga whose second step says that it runs; `ends` says whether it ever ends.
fn saga(ends: bool, tries: &Arc<AtomicU16>) -> Saga {
    let tries = tries.clone();
    let charge = move |step: Step| {
        tries.store(step.tries(), Ordering::SeqCst);
        async move {
            if !ends {
                println!("{SAYS}");
                std::future::pending::<()>().await;
            }
            StepResult::Ok("ch_1")
        }
    };
    Saga::builder("order")
        .step("reserve", |_: Step| async { Ok("seat 12") })
        .undo(|_: Step| async { Ok(()) })
        .step("charge", charge)
        .with_retry_unknown()
        .with_lease(LEASE)
        .build()
        .unwrap()
}

/// The process that is killed is this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_that_drives_a_saga() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    // When the test is gone, so is its input.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let (onceward, saga) = (engine(folder.as_ref()).await, saga(false, &Arc::default()));
    saga.start(&onceward, "81", "").await.unwrap();
    saga.worker(&onceward).unwrap().run_until(std::future::pending()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_holds_up_no_saga_where_its_death_is_certain() {
    let folder = tempdir().unwrap();
    let receipts = folder.path().join("receipts");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "saga_kill::process_that_drives_a_saga", "--nocapture"]).env(FOLDER, &receipts);
    let mut killed = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(killed.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains(SAYS)), "it ended before its step ran");
    killed.kill().unwrap();
    killed.wait().unwrap();

    let began = Instant::now();
    let (onceward, tries) = (engine(&receipts).await, Arc::<AtomicU16>::default());
    let saga = saga(true, &tries);
    let worker = saga.worker(&onceward).unwrap();
    let ended = async {
        loop {
            worker.run_once().await.unwrap();
            let view = saga.view(&onceward, "81").await.unwrap().unwrap();
            if view.ended.is_some() {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let view = tokio::time::timeout(AT_ONCE, ended).await.expect("it waits for a lease");
    println!("{:?} from the start of the next process to the end of the saga", began.elapsed());
    assert_eq!(view.state, SagaState::Completed, "{view:#?}");
    assert_eq!(tries.load(Ordering::SeqCst), 2, "the step ran again, under the same receipt");
}
