//! Simulated maintenance of a store: sweeps, and an operator who settles unknown outcomes and dead letters.

use std::sync::Arc;
use std::time::Duration;

use onceward::receipt::{Claim, Status};
use onceward::{
    Changed, Due, Erase, Filter, Id, Onceward, Outcome, Receipt, Record, Scan, ScanTarget, Seen, Settlement,
    Snapshot, State, Store, Swap, Swapped, codec,
};

use super::callers::CallPlan;
use super::executor::Process;
use super::front::FrontBehavior;
use super::history::{CallMethod, CallResult, Closing, EventKind, Stamp, name};
use super::simulation::Simulation;
use crate::broken::operators::OperatorFlaw;

/// Sweeps now and then.
pub(super) async fn sweeper(
    sim: Arc<Simulation>,
    process: Process,
    engine: Onceward,
    store: Arc<dyn Store>,
    every: Duration,
) {
    loop {
        sim.executor.sleep(process, every).await;
        let sweep = sim.executor.draw(|random| sim.scenario.sweep(random));
        sim.recorder.record(process, EventKind::Sweeps { unknown_after: sweep.unknown_after });
        match sim.variant.sweeps {
            // A sweep that fails is tried again at the next turn.
            None => drop(engine.sweep(&sweep).await),
            Some(flaw) => drop(flaw.sweep(&*store, &sweep).await),
        }
    }
}

/// Erases now and then what is kept forever.
pub(super) async fn eraser(
    sim: Arc<Simulation>,
    process: Process,
    engine: Onceward,
    behavior: FrontBehavior,
) {
    // What is kept of the answer says whose it was.
    let how = Erase::new().with_note(|outcome| match outcome.snapshot() {
        Snapshot::Kept(bytes) | Snapshot::Omitted(bytes) => bytes.clone(),
    });
    loop {
        sim.executor.sleep(process, behavior.erase_every).await;
        if sim.is_calm() {
            return;
        }
        let query = Scan::new(ScanTarget::Matching(Filter::default().with_state(State::Done)), 16);
        let Ok(page) = engine.list(&query).await else { continue };
        // Others may be run again before the erasure comes.
        let forever = page.found.into_iter().filter(|(id, found)| found.due == Due::Never && !id.is_step());
        for (id, _) in forever {
            if sim.executor.draw(|random| random.chance(300)) {
                let bound = behavior.age_max;
                sim.recorder.record(process, EventKind::Erasing { id: id.clone(), reopen: false, bound });
                // One that fails is no erasure.
                drop(engine.erase(&id, &how).await);
            }
        }
    }
}

/// Lists unknown outcomes and dead letters now and then, and settles each by chance. Its decision is final.
pub(super) async fn operator(sim: Arc<Simulation>, process: Process, engine: Onceward, every: Duration) {
    loop {
        sim.executor.sleep(process, every).await;
        // Once nothing is faulty any more, everything must end without help.
        if sim.is_calm() {
            return;
        }
        if sim.scenario.besides.starts_now {
            start_now(&sim, process, &engine).await;
        }
        if sim.scenario.erases && sim.scenario.besides.erases_matching {
            erase_matching(&sim, process, &engine).await;
        }
        let states = [State::Unknown, State::Dead, State::Done];
        let states = if sim.scenario.erases { &states[..] } else { &states[..2] };
        let wanted = sim.executor.draw(|random| random.pick(states));
        let filter = Filter::default().with_state(wanted);
        let query = Scan::new(ScanTarget::Matching(filter), 16);
        let Ok(page) = engine.list(&query).await else { continue };
        for (id, receipt) in page.found {
            if sim.scenario.erases && sim.executor.draw(|random| random.chance(150)) {
                erase(&sim, process, &engine, &id, wanted == State::Done).await;
                continue;
            }
            match &receipt.status {
                Status::Unknown(_)
                    if sim.scenario.besides.forgets_unknown
                        && sim.executor.draw(|random| random.chance(300)) =>
                {
                    forget_unknown(&sim, process, &engine, &id, &receipt).await;
                }
                Status::Unknown(unknown) => {
                    settle_by_chance(&sim, process, &engine, &id, &unknown.claim).await;
                }
                Status::Dead(dead) => {
                    let chance = sim.executor.draw(|random| random.below(4));
                    match chance {
                        0 => decide(&sim, process, &engine, &id, Closing::Discard).await,
                        1 => settle_by_chance(&sim, process, &engine, &id, &dead.claim).await,
                        _ => decide(&sim, process, &engine, &id, Closing::Retry).await,
                    }
                }
                _ => {}
            }
        }
    }
}

/// Removes what a receipt says, and sometimes frees the key of one that is done.
async fn erase(sim: &Simulation, process: Process, engine: &Onceward, id: &Id, done: bool) {
    let reopen = done && sim.executor.draw(|random| random.chance(300));
    let bound = sim.scenario.front.as_ref().map_or(onceward::CACHE_AGE_MAX, |front| front.age_max);
    sim.recorder.record(process, EventKind::Erasing { id: id.clone(), reopen, bound });
    // If it has changed meanwhile, or the store fails, the next look will tell.
    let _ = engine.erase(id, &Erase::new().with_reopen(reopen)).await;
}

/// Erases all that matches: what is done, of one key or of all of them.
async fn erase_matching(sim: &Simulation, process: Process, engine: &Onceward) {
    let (erases, key, reopen) = sim.executor.draw(|random| {
        let key = random.pick(&sim.scenario.intents).id.key().to_owned();
        (random.chance(200), random.chance(700).then_some(key), random.chance(300))
    });
    if !erases {
        return;
    }
    let mut filter = Filter::default().with_scope("sim".to_owned()).with_state(State::Done);
    let bound = sim.scenario.front.as_ref().map_or(onceward::CACHE_AGE_MAX, |front| front.age_max);
    for intent in &sim.scenario.intents {
        if key.as_ref().is_none_or(|key| intent.id.key() == key) {
            sim.recorder.record(process, EventKind::Erasing { id: intent.id.clone(), reopen, bound });
        }
    }
    if sim.variant.operator != OperatorFlaw::ErasesMoreThanWanted {
        filter = filter.with_key(key);
    }
    let mut after = None;
    loop {
        // If the store fails, the rest is left as it is.
        let page = engine.erase_matching(&filter, &Erase::new().with_reopen(reopen), after, 4).await;
        match page {
            Ok(page) if page.next.is_some() => after = page.next,
            _ => return,
        }
    }
}

/// Has what waits for its time begin now, by chance.
async fn start_now(sim: &Arc<Simulation>, process: Process, engine: &Onceward) {
    let filter = Filter::default().with_state(State::Waiting);
    let Ok(page) = engine.list(&Scan::new(ScanTarget::Matching(filter), 16)).await else { return };
    for (id, _) in page.found {
        if !id.is_step() && sim.executor.draw(|random| random.chance(300)) {
            decide(sim, process, engine, &id, Closing::StartNow).await;
        }
    }
}

/// Forgets an unknown outcome that did not happen, as far as the operator knows.
async fn forget_unknown(sim: &Simulation, process: Process, engine: &Onceward, id: &Id, found: &Receipt) {
    let version = found.version.0;
    let bound = sim.scenario.front.as_ref().map_or(onceward::CACHE_AGE_MAX, |front| front.age_max);
    sim.recorder.record(process, EventKind::Forgetting { id: id.clone(), version, bound });
    if sim.variant.operator == OperatorFlaw::ForgetsBeforeLateEffects {
        let removed = Swap { id: id.clone(), seen: Seen::Version(found.version), new: None };
        drop(sim.store.handle(process).swap(&[removed]).await);
        return;
    }
    // If it has changed meanwhile, or the store fails, the next look will tell.
    drop(engine.forget_unknown(id, found).await);
}

async fn settle_by_chance(sim: &Simulation, process: Process, engine: &Onceward, id: &Id, claim: &Claim) {
    let fingerprint = claim.fingerprint.digest()[0];
    let settlement = match sim.executor.draw(|random| random.below(20)) {
        0..10 => Settlement::NotDone,
        10 => Settlement::ForceNotDone,
        _ => Settlement::Done(Outcome::succeeded(Stamp { name: name(id), fingerprint, call: 0 }.text())),
    };
    settle(sim, process, engine, id, claim, settlement).await;
}

/// Says what became of a run. If another run has taken its place, or the store fails, the next look will tell.
pub(super) async fn settle(
    sim: &Simulation,
    process: Process,
    engine: &Onceward,
    id: &Id,
    claim: &Claim,
    mut settlement: Settlement,
) {
    let said = EventKind::Settling { id: id.clone(), fence: claim.fence, settlement: settlement.clone() };
    sim.recorder.record(process, said);
    if sim.variant.operator == OperatorFlaw::SettlesBeforeLateEffects && settlement == Settlement::NotDone {
        settlement = Settlement::ForceNotDone;
    }
    let _ = engine.settle(id, claim.fence, &settlement, &sim.policy_of(id)).await;
}

/// What a script makes of "begin now": it writes the whole record again, with its tries at zero.
async fn start_from_the_beginning(
    sim: &Simulation,
    process: Process,
    engine: &Onceward,
    id: &Id,
) -> onceward::Result<Changed> {
    let Some(mut found) = engine.receipt(id).await? else { return Ok(Changed::NotOwner(None)) };
    let Status::Waiting(waiting) = &mut found.status else { return Ok(Changed::NotOwner(None)) };
    if let Some(job) = &mut waiting.job {
        let job = Arc::make_mut(job);
        (job.started, job.finished) = (0, 0);
    }
    let new = Record::new(State::Waiting, codec::encode(&found.status)).with_due_in(Duration::ZERO);
    let swap = Swap { id: id.clone(), seen: Seen::Version(found.version), new: Some(new) };
    Ok(match sim.store.handle(process).swap(&[swap]).await?.pop() {
        Some(Swapped::Won(_)) => Changed::Applied,
        _ => Changed::NotOwner(None),
    })
}

/// Discards a dead letter, has it tried again, or has what waits begin now.
pub(super) async fn decide(
    sim: &Arc<Simulation>,
    process: Process,
    engine: &Onceward,
    id: &Id,
    closing: Closing,
) {
    let call_plan = CallPlan { id: id.clone(), fingerprint: 0, policy: sim.policy_of(id), input: false };
    let mut waiting = call_plan.asks(sim, process, CallMethod::Close(closing));
    let changed = match closing {
        Closing::Discard => engine.discard_dead(id, &call_plan.policy).await,
        Closing::StartNow if sim.variant.operator == OperatorFlaw::StartsNowFromTheBeginning => {
            start_from_the_beginning(sim, process, engine, id).await
        }
        Closing::StartNow => engine.start_now(id).await,
        _ => engine.retry_dead(id).await,
    };
    waiting.told(match changed {
        Ok(changed) => CallResult::Closed(changed == Changed::Applied),
        Err(error) => CallResult::Error(Box::new(error)),
    });
}
