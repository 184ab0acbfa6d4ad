//! Writes with the right time: each answer shows whether the time that its writes were stamped with was right.

use onceward::{Record, Result, Seen, Swap, Swapped, Version};

use super::store::EtcdStore;
use crate::kit::dated_clock::Checked;

impl EtcdStore {
    /// Swaps, and again what turns out to be stamped with a time long past: the process was paused, and would otherwise
    /// leave leases and retentions that are over already.
    pub(super) async fn swap_all(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        let stamp = self.client.clock.stamp();
        let mut answers = self.swap_stamped(batch, stamp.now_us).await?;
        let checked = self.client.clock.check(stamp);
        let (mut again, mut places) = (Vec::new(), Vec::new());
        for (at, swap) in batch.iter().enumerate() {
            if let Some((version, record)) = written(&answers[at], swap)
                && checked.must_be_repeated(record)
            {
                let (id, seen) = (swap.id.clone(), Seen::Version(version));
                again.push(Swap { id, seen, new: Some(record.clone()) });
                places.push(at);
            }
        }
        let mut checked_again = Checked::Right;
        if !again.is_empty() {
            let stamp = self.client.clock.stamp();
            let repeated = self.swap_stamped(&again, stamp.now_us).await;
            checked_again = self.client.clock.check(stamp);
            for (nth, &at) in places.iter().enumerate() {
                answers[at] = match &repeated {
                    Ok(repeated) => match &repeated[nth] {
                        Swapped::Won(version) => Swapped::Won(*version),
                        // The first write was there, and somebody has seen it.
                        Swapped::Lost(_) => self.unproven(),
                        Swapped::Failed(error) => Swapped::Failed(error.clone().maybe_applied()),
                    },
                    Err(error) => Swapped::Failed(error.clone().maybe_applied()),
                };
            }
        }
        for (at, swap) in batch.iter().enumerate() {
            let checked = if places.contains(&at) { checked_again } else { checked };
            if let Some((_, record)) = written(&answers[at], swap)
                && !checked.is_enough(record)
            {
                answers[at] = self.unproven();
            }
        }
        Ok(answers)
    }

    fn unproven(&self) -> Swapped {
        Swapped::Failed(Checked::error(&self.client.http.name()))
    }
}

/// The version and the record of a swap that has written one.
fn written<'a>(answer: &Swapped, swap: &'a Swap) -> Option<(Version, &'a Record)> {
    match (answer, &swap.new) {
        (Swapped::Won(version), Some(record)) => Some((*version, record)),
        _ => None,
    }
}
